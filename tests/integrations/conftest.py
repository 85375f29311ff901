"""The frameworks are extras; without one, its tests are skipped, except where all must be there."""

import os
from importlib import import_module

if os.environ.get("HIERMEM_TEST_INTEGRATIONS"):
    for package in (
        "agents",
        "celery",
        "langchain",
        "langchain_tests",
        "opentelemetry.sdk",
        "procrastinate",
        "pydantic_ai",
    ):
        import_module(package)
