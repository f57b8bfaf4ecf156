"""The one table of actions: bindings, footer, palette and help are all read from it.

Only keys that arrive through every terminal, tmux and SSH client are used: letters, digits, F1 to F10, arrows, enter,
space, escape. At most six stand in a footer; the others are in the help and in the palette.
"""

from __future__ import annotations

from dataclasses import dataclass

from textual.binding import Binding, BindingType

WIZARD = ("model", "work", "slo", "knob", "values", "review")
SIX = 6


@dataclass(frozen=True)
class Act:
    """One thing a person can do: `name` is the method `action_NAME`, `screens` where it exists."""

    name: str
    keys: str  # comma-separated; the first is the one shown
    label: str
    says: str
    screens: tuple[str, ...]
    footer: bool = True
    palette: bool = True
    priority: bool = False

    @property
    def key(self) -> str:
        """The key as a person would call it."""
        return display(self.keys.partition(",")[0])


def display(key: str) -> str:
    names = {"escape": "esc", "question_mark": "?", "slash": "/", "left": "←", "plus": "+", "minus": "-"}
    return names.get(key, key.upper() if key.startswith("f") and key[1:].isdigit() else key)


ACTIONS: tuple[Act, ...] = (
    # everywhere
    Act("help", "f1,question_mark", "Help", "Explain this screen and list its keys", (
        "home", *WIZARD, "run", "replay", "results", "decide", "saved", "logs"), palette=True),
    # home
    Act("open", "enter", "Open", "Open the session under the cursor", ("home",)),
    Act("new", "n", "New sweep", "Plan a new sweep, step by step", ("home",)),
    Act("again", "a", "Same again", "A new sweep that starts from this session's plan",
        ("home", "results", "saved"), footer=False),
    Act("resume", "r", "Resume", "Finish an interrupted sweep: measured points are kept",
        ("home", "run", "results"), footer=False),
    Act("recheck", "k", "Recheck", "Measure this session's plan again on this card and engine",
        ("home", "results"), footer=False),
    Act("replay", "p", "Replay", "Play the session under the cursor back as it was measured, faster", ("home",)),
    Act("doctor", "d", "Check-up", "Look at machine, engine and folders, and say what is missing", ("home",)),
    Act("light", "t", "Theme", "Switch between the dark and the light theme", ("home",), footer=False),
    # wizard
    Act("next", "enter", "Next", "Accept this step and go to the next one", ("model", "work", "slo", "knob", "values")),
    Act("back", "escape", "Back", "Go back one step; nothing is lost", (*WIZARD, "results", "decide", "saved")),
    Act("paste", "f3", "Paste a line", "Start from the command or YAML in use: vllm serve, docker run, …", ("model",)),
    Act("to_review", "f4", "To review", "Skip to the review with what stands here",
        ("model", "work", "slo", "knob", "values")),
    Act("knob_help", "f5", "About this knob", "Read what this knob does and trades", ("knob", "values")),
    Act("start", "f2", "Start", "Write the session and start measuring", ("review",)),
    Act("noise", "f6", "Noise run", "Launch the baseline alone, five times: the noise band that decide needs",
        ("review",), footer=False),
    Act("edit", "enter", "Choose", "Change the line under the cursor, or start", ("review",)),
    # run
    Act("leave", "escape,q", "Leave", "Leave the screen; the sweep goes on", ("run",)),
    Act("stop", "s", "Stop", "Stop the sweep; what was measured is kept", ("run",)),
    Act("skip", "k", "Skip point", "End the running point and go on with the next", ("run",)),
    Act("add", "a", "Add value", "Add a value to this sweep", ("run",), footer=False),
    Act("drop", "x", "Drop value", "Take out the value under the cursor, if it has not started",
        ("run",), footer=False),
    Act("why", "enter", "Details", "What is known of the point under the cursor", ("run", "replay"), footer=False),
    Act("logs", "l", "Log", "The engine's own output at this point", ("run", "results")),
    Act("fix", "t", "Try it", "Try the value that the failure under the cursor names, here or in a new sweep",
        ("run", "results"), footer=False),
    Act("results", "v", "Results", "The figures so far, as a result", ("run",)),
    # replay
    Act("leave", "escape,q", "Leave", "Leave the replay", ("replay",)),
    Act("pause", "space", "Pause", "Hold the replay, or let it go on", ("replay",)),
    Act("faster", "plus,f", "Faster", "Play twice as fast", ("replay",)),
    Act("slower", "minus,s", "Slower", "Play half as fast", ("replay",)),
    Act("end", "e", "To the end", "Show the end of the recording at once", ("replay",)),
    Act("results", "v", "Results", "What came of it, once the replay is at its end", ("replay",)),
    # results
    Act("decide", "enter,d", "Decide", "Keep a value or go back to the baseline", ("results",)),
    Act("page", "space", "Next view", "Table, curve, answers, prediction", ("results",)),
    # decide
    Act("accept", "enter", "Record", "Record this decision", ("decide",)),
    # saved
    Act("onward", "n", "Next knob", "Plan the next sweep from this configuration", ("saved",)),
    Act("copy", "c", "Copy line", "Send the serve line to your terminal's clipboard", ("saved",)),
    Act("yaml", "y", "YAML", "Show the configuration as YAML", ("saved",), footer=False),
    Act("home", "enter,h", "Home", "Back to the list of sessions", ("saved",)),
    # logs
    Act("follow", "f", "Follow", "Keep to the end of the log", ("logs",)),
    Act("close", "escape,q", "Close", "Back to where you were", ("logs", "help", "confirm")),
    Act("close", "escape,enter,q", "Close", "Back to where you were", ("details",)),
    Act("close", "escape", "Leave it", "Back, with nothing changed", ("ask", "paste")),
    Act("answer", "enter", "Accept", "Take what stands there", ("ask",)),
    Act("use", "f2", "Use it", "Read this text and check every flag", ("paste",)),
    Act("yes", "y", "Yes", "Do it", ("confirm",)),
    Act("quit", "q", "Quit", "Leave tui-tuner; a running sweep goes on", ("home",)),
)  # fmt: skip


def of(screen: str) -> tuple[Act, ...]:
    """The actions of a screen, those of the footer first."""
    mine = [a for a in ACTIONS if screen in a.screens]
    helps = [a for a in mine if a.name == "help"]
    rest = [a for a in mine if a.name != "help"]
    return (*[a for a in rest if a.footer], *helps, *[a for a in rest if not a.footer])


def bindings(screen: str) -> list[BindingType]:
    """Textual's bindings for a screen."""
    return [
        Binding(
            key,
            act.name,
            act.label,
            show=act.footer and number == 0,
            key_display=display(key),
            tooltip=act.says,
            priority=act.priority,
            id=f"{screen}.{act.name}.{number}",
        )
        for act in of(screen)
        for number, key in enumerate(act.keys.split(","))
    ]


def act(name: str, screen: str) -> Act:
    """The action called `name` on `screen`. Raises KeyError if the table has none."""
    for entry in ACTIONS:
        if entry.name == name and screen in entry.screens:
            return entry
    raise KeyError(f"{screen} has no action {name}")
