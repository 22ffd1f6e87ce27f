"""As small as a project can be."""

import os
from pathlib import Path

DEBUG = True
SECRET_KEY = "only for this example"
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "urls"
INSTALLED_APPS = ["orders"]
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

DATA = Path(os.environ.get("DATA", "."))
DATABASES = {
    "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": DATA / "django.db", "OPTIONS": {"timeout": 20}}
}

PERDURE_URL = os.environ.get("PERDURE_URL", f"sqlite:///{DATA / 'jobs.db'}")
