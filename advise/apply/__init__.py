"""Act on advice: plan within limits, execute the plan, follow up the outcomes.

The commands use the names below; each is imported at its first use.
"""

from typing import TYPE_CHECKING

from condor_advice.model import lazily

if TYPE_CHECKING:
    from condor_advice.advise.apply.effects import past_with_effects as past_with_effects
    from condor_advice.advise.apply.effects import reachable_sources as reachable_sources
    from condor_advice.advise.apply.execute import action_as_dict as action_as_dict
    from condor_advice.advise.apply.options import Acting as Acting
    from condor_advice.advise.apply.options import apply_options as apply_options

_EXPORTS = {
    "Acting": "options",
    "action_as_dict": "execute",
    "apply_options": "options",
    "past_with_effects": "effects",
    "reachable_sources": "effects",
}
if not TYPE_CHECKING:  # a checker sees the imports above, and refuses names that do not exist
    __getattr__ = lazily(__name__, _EXPORTS)
