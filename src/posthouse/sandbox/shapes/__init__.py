"""The APIs that the sandbox answers as: its own, and those of providers, a module each."""

from __future__ import annotations

from typing import Final

from posthouse.sandbox.shape import Shape
from posthouse.sandbox.shapes.mailgun import MAILGUN
from posthouse.sandbox.shapes.own import OWN as OWN
from posthouse.sandbox.shapes.postmark import POSTMARK
from posthouse.sandbox.shapes.resend import RESEND
from posthouse.sandbox.shapes.sendgrid import SENDGRID
from posthouse.sandbox.shapes.ses import SES

SHAPES: Final[tuple[Shape, ...]] = (OWN, POSTMARK, RESEND, SENDGRID, MAILGUN, SES)
