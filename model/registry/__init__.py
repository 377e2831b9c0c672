"""Versions of models, the gate between them, their manifests and cards.

Other rooms use the names below; each is imported when it is asked for.
"""

from typing import TYPE_CHECKING

from condor_advice.model import lazily

if TYPE_CHECKING:
    from condor_advice.model.registry.gate import GateResult as GateResult
    from condor_advice.model.registry.manifest import Manifest as Manifest
    from condor_advice.model.registry.places import STARTER as STARTER
    from condor_advice.model.registry.places import default_models_path as default_models_path
    from condor_advice.model.registry.versions import Registry as Registry

MODULES = {
    "GateResult": "gate",
    "Manifest": "manifest",
    "Registry": "versions",
    "STARTER": "places",
    "default_models_path": "places",
}
if not TYPE_CHECKING:  # a checker sees the imports above, and refuses names that do not exist
    __getattr__ = lazily(__name__, MODULES)
