"""tui-tuner: tune one vLLM knob at a time, and know whether it helped."""

__version__ = "0.1.0"
