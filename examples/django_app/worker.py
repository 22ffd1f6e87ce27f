"""What `perdure worker worker.py` loads: Django, then the `tasks` module of each app."""

import os

import django
from django.utils.module_loading import autodiscover_modules

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")
django.setup()
autodiscover_modules("tasks")

from jobs import app  # noqa: E402, F401 - found here by `perdure worker`
