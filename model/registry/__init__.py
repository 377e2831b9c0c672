"""Versions of models, the gate between them, their manifests and cards.

Other rooms use the names below; each is imported on first use.
"""

from typing import TYPE_CHECKING

from condor_advice.model import lazily

if TYPE_CHECKING:
    from condor_advice.model.registry.gate import GateResult as GateResult
    from condor_advice.model.registry.manifest import Manifest as Manifest
    from condor_advice.model.registry.places import STARTER as STARTER
    from condor_advice.model.registry.places import default_models_path as default_models_path
    from condor_advice.model.registry.versions import Registry as Registry

_EXPORTS = {
    "GateResult": "gate",
    "Manifest": "manifest",
    "Registry": "versions",
    "STARTER": "places",
    "default_models_path": "places",
}
if not TYPE_CHECKING:  # type checkers use the imports above, and so reject unknown names
    __getattr__ = lazily(__name__, _EXPORTS)
