"""From the bound to the expected time: what each call costs on the device and on the host, with a band."""

from rooflens.predict.call_on_device import CallOnDevice, calls_on_device
from rooflens.predict.card import Card, card_of, telling
from rooflens.predict.constants import Constants, Level, constants_of, generation, generations
from rooflens.predict.expected import expected_seconds
from rooflens.predict.step import Conduct, KnownTimes, Prediction, Way, alone, fuses, predicted, way_of
from rooflens.predict.terms import Combined, Detail, Form, Term, constants_of_form, form_of
