"""All that happens between a person's wish and a runner: plan files, checks, the start, the doctor."""
