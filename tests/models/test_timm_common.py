"""timm's own model tests on Orchid-ViT, from a checkout named by ORCHID_TIMM.

    ORCHID_TIMM=CHECKOUT pytest -c /dev/null -rA tests/models/test_timm_common.py

(their markers are not ours, hence the empty configuration). timm tests sequences of patches apart from models whose
features are images, by lists of names; these are the tests for the former. docs/timm_tests.md lists what passes.
"""

import importlib.util
import os
from pathlib import Path

import pytest

CHECKOUT = os.environ.get("ORCHID_TIMM")
if CHECKOUT is None:
    pytest.skip("needs ORCHID_TIMM, a checkout of timm", allow_module_level=True)
from orchid.models.timm import ARCHITECTURES  # noqa: E402

TESTS = {
    "test_model_forward": 1,
    "test_model_backward": 2,
    "test_model_default_cfgs_non_std": 1,
    "test_model_forward_features": 1,
    "test_model_forward_intermediates": 1,
    "test_model_forward_intermediates_features": 1,
    "test_model_forward_fx": 1,
    "test_model_backward_fx": 2,
}


def _theirs() -> object:
    spec = importlib.util.spec_from_file_location("timm_model_tests", Path(CHECKOUT or "") / "tests" / "test_models.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


THEIRS = _theirs()


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
def test_common(name: str, test: str) -> None:
    getattr(THEIRS, test)(name, TESTS[test])
