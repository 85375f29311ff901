"""Writes the JSON schema that a model is given for the values it answers with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel


def closed_schema(model: type[BaseModel]) -> str:
    """Return the schema of ``model`` as JSON: every field is required, and no other is allowed.

    Titles and descriptions are left out. They are paid for with each request, and the prompt says
    what each field is.
    """
    schema: dict[str, Any] = _bare(model.model_json_schema())
    for part in (schema, *schema.get("$defs", {}).values()):
        # Providers that hold a model to a schema want each field listed, defaults or not.
        part["required"] = list(part["properties"])
        for field in part["properties"].values():
            field.pop("default", None)
    return json.dumps(schema)


def _bare(value: Any, *, names: bool = False) -> Any:
    """Leave out titles and descriptions; ``names``: the keys are names, not keywords."""
    if isinstance(value, Mapping):
        return {
            key: _bare(held, names=key in ("properties", "$defs") and not names)
            for key, held in value.items()
            if names or key not in ("title", "description")
        }
    return [_bare(held) for held in value] if isinstance(value, list) else value
