"""The project's settings. The tests point its databases elsewhere, as Django's own test runner does."""

SECRET_KEY = "only for tests"
ALLOWED_HOSTS = ["testserver"]
ROOT_URLCONF = "tests.integration.django_project.urls"
INSTALLED_APPS = ["tests.integration.django_project.shop"]
DATABASES = {
    "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
    "other": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
}
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
USE_TZ = True
TIME_ZONE = "Asia/Kathmandu"
LOGGING_CONFIG = None
