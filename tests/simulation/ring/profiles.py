"""The kinds of scenarios by name."""

from __future__ import annotations

from tests.simulation.ring.scenario import ANY, CALM, ONE, Profile

PROFILES: dict[str, Profile] = {profile.name: profile for profile in (ANY, CALM, ONE)}
