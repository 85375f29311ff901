"""The options that select a language model and cap its calls, and the model made from them.

Keys are read from the environment, never from the command line, where every process of the machine
could read them.
"""

from __future__ import annotations

import os
from typing import Annotated, Any, Final

import typer

from hiermem import LLM, ConfigError, UsageError, model_by_name

Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        envvar="HIERMEM_MODEL",
        metavar="PROVIDER:MODEL",
        help="Use this model (openai:NAME, anthropic:NAME, litellm:NAME), not the offline one.",
    ),
]
ModelUrl = Annotated[
    str | None,
    typer.Option(
        "--model-url",
        envvar="HIERMEM_MODEL_URL",
        help="The address of its server; HIERMEM_MODEL_KEY in the environment holds the key.",
    ),
]
ModelWindow = Annotated[
    int | None,
    typer.Option(
        "--model-window",
        envvar="HIERMEM_MODEL_WINDOW",
        min=1,
        help="Its context window in tokens, if it is not known.",
    ),
]
Concurrency = Annotated[
    int | None,
    typer.Option(
        min=1, max=256, help="Calls in flight: 3 by default, 1 for a server on this machine."
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        min=0, help="Seconds that one call may take; 600 by default for a server on this machine."
    ),
]
Retries = Annotated[
    int | None, typer.Option(min=0, help="How often a call that failed for a moment is repeated.")
]
Temperature = Annotated[
    float | None, typer.Option(min=0, max=2, help="The model's temperature for all requests.")
]
MaxCalls = Annotated[int | None, typer.Option(min=0, help="Stop before more calls.")]
MaxTokens = Annotated[int | None, typer.Option(min=0, help="Stop before more tokens.")]
#: The variable with the key for ``--model``; without it, the provider's own variable is used.
KEY: Final = "HIERMEM_MODEL_KEY"


def model_of(
    model: str | None,
    *,
    url: str | None,
    window: int | None,
    timeout: float | None = None,
    temperature: float | None = None,
) -> LLM | None:
    """Return the model that the options name; None if they name none.

    Raises BadParameter for an unknown name, and ConfigError as the adapters do.
    """
    if not model:
        if url or window or temperature is not None:
            raise typer.BadParameter("--model-url, --model-window and --temperature need a --model")
        return None
    settings: dict[str, Any] = {"base_url": url or None, "api_key": os.environ.get(KEY) or None}
    if window is not None:
        settings["context_window"] = window
    if timeout is not None:
        settings["timeout"] = timeout
    if temperature is not None:
        settings["temperature"] = temperature
    try:
        return model_by_name(model, **settings)
    except ConfigError:
        raise
    except UsageError as error:
        raise typer.BadParameter(f"--model: {error}") from None


def calls_of(
    *, timeout: float | None, retries: int | None, concurrency: int | None = None
) -> dict[str, Any]:
    """Return the settings of a policy that the options give; all others keep their defaults.

    >>> calls_of(timeout=30.0, retries=None)
    {'call_timeout': 30.0}
    """
    given = {"call_timeout": timeout, "retries": retries, "concurrency": concurrency}
    return {name: value for name, value in given.items() if value is not None}
