"""The predicted seconds of a call on a backend, from measured speeds if there are any."""

from dataclasses import dataclass

from trueno.discovery.protocol import Call, Rates
from trueno.select import calibration, cost


@dataclass(frozen=True, slots=True)
class Estimate:
    """Predicted seconds of a call, and whether the speeds were `measured` here or `declared` by the backend."""

    seconds: float
    source: str


def predict(call: Call, name: str, declared: Rates) -> Estimate:
    """Seconds that a call takes on the backend `name`: by speeds measured here, else by those it declares.

    Host arrays also pay for the backend's link, if it has one.  ValueError if declared speeds are needed but invalid.
    """
    rates = calibration.rates(name, call)
    source = "declared" if rates is None else "measured"
    if rates is None:
        if problem := cost.refuse(declared):
            raise ValueError(f"{name}: {problem}")
        rates = declared
    return Estimate(cost.seconds(rates, cost.work(call), linked=call.residency == "host"), source)
