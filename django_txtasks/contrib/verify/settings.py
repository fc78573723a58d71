"""The settings of a storm's processes: the user's own, pointed at the scratch database."""

from __future__ import annotations

from importlib import import_module

from django_txtasks.contrib.verify.project import Scene, scratch_settings

_scene = Scene.here()
_user = import_module(_scene.settings)

globals().update(
    scratch_settings({name: getattr(_user, name) for name in dir(_user) if name.isupper()}, _scene)
)
