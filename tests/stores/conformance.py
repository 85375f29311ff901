"""The conformance suite as the stores here run it: fewer histories in the ordinary run."""

from pathlib import Path
from typing import ClassVar

import sampling
from hypothesis import settings

from hiermem.testing import StoreConformance


class Conformance(StoreConformance):
    machine_settings: ClassVar[settings] = settings(
        StoreConformance.machine_settings,
        max_examples=sampling.share(StoreConformance.machine_settings.max_examples, 5),
    )

    @sampling.counted
    def test_it_agrees_with_the_reference(self, tmp_path: Path) -> None:
        super().test_it_agrees_with_the_reference(tmp_path)
