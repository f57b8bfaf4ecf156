"""The quality pass: questions in, answers out, unscored."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Sequence
from typing import Any

from tui_tuner.model import wire
from tui_tuner.worker.load import ERROR, Coder, Engine, is_dead

# Answered at a time: the same at every point, because the batch's size changes rounding and so, now and then, a word.
TOGETHER = 32


class Prompts:
    """Questions as token ids: through the model's chat template where it has one, else as plain text.

    `tokenizer` is a Hugging Face tokenizer or one that answers like it.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.has_template = bool(getattr(tokenizer, "chat_template", None))

    def encode(self, text: str) -> list[int]:
        """Text as it stands, without the tokens that mark a beginning or an end."""
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def plain(self, text: str) -> list[int]:
        """A whole prompt, with the beginning that the model expects."""
        return list(self._tokenizer.encode(text))

    def chat(self, messages: Sequence[dict[str, Any]]) -> list[int]:
        """Chat messages, up to where the model's answer begins. Raises what the template raises."""
        if not self.has_template:
            return self.plain("\n\n".join(str(message.get("content", "")) for message in messages))
        try:
            return self._template(list(messages))
        except Exception:
            if not messages or messages[0].get("role") != "system":
                raise
            # Some templates refuse a system message; its words then begin the person's first one.
            return self._template(_without_system(messages))

    def _template(self, messages: list[dict[str, Any]]) -> list[int]:
        text = self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return self.encode(text)


def _without_system(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    system, rest = messages[0], [dict(message) for message in messages[1:]]
    if not rest:
        return [{"role": "user", "content": system.get("content", "")}]
    rest[0]["content"] = f"{system.get('content', '')}\n\n{rest[0].get('content', '')}"
    return rest


async def ask(engine: Engine, questions: Sequence[wire.Question], coder: Coder, params: Any) -> wire.Replies:
    """Asks every question once, `TOGETHER` at a time, in their order. `params` make the engine answer greedily, with
    one output at the end.

    A question that the engine refuses (longer than its context) has an empty answer and the finish reason "error".
    Raises what the engine died of, and the refusal if it refused them all.
    """
    ids = [
        list(coder.chat(question.messages or [{"role": "user", "content": question.prompt or ""}]))
        for question in questions
    ]
    text, finish, tokens = [""] * len(ids), [ERROR] * len(ids), [0] * len(ids)
    refused: list[Exception] = []
    waiting = iter(range(len(ids)))

    async def client() -> None:
        for index in waiting:
            try:
                async for output in engine.generate({"prompt_token_ids": ids[index]}, params, f"question-{index}"):
                    only = output.outputs[0]
                    if only.finish_reason is not None:
                        text[index], finish[index] = only.text, only.finish_reason
                        tokens[index] = len(only.token_ids)
            except Exception as error:
                if is_dead(engine, error):
                    raise
                traceback.print_exception(type(error), error, error.__traceback__)
                refused.append(error)

    await asyncio.gather(*(client() for _ in range(min(TOGETHER, len(ids)))))
    if refused and len(refused) == len(ids):
        raise refused[0]
    return wire.Replies(
        item=[question.id for question in questions],
        text=text,
        finish=finish,
        tokens=tokens,
        chat_template=coder.has_template,
    )
