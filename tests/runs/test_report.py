"""Reports: complete, readable, safe to read back, safe to show."""

import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from dp_accounting import dp_event as dp
from tests.accounting.helpers import ADD, REPLACE

from sordino import PCA
from sordino.accounting import calibrate, certify
from sordino.errors import InvalidInputError, PlanError
from sordino.kernel import ClippedSum, Full, Gaussian, GumbelTopK, NoiseSource, Norm, Plan, Poisson, Release
from sordino.runs import PaperClaim, PrivacyReport
from sordino.runs.report import at_most


class Sum(ClippedSum):
    def __init__(self, bound=3.0, norm=Norm.L2):
        self.bound, self.norm = bound, norm

    def contribution(self, params):
        return self.bound


class Difference(ClippedSum):
    """Its bound is the distance of two released points."""

    def contribution(self, params):
        first, second = params
        return abs(first - second)


def make_plan(relation=ADD):
    return Plan(
        {
            "gradient": Release(Sum(), Gaussian(), Poisson(0.1), times=20),
            "correction": Release(Difference(), Gaussian(relative=2.0), Poisson(0.1), times=7),
            "support": Release(Sum(0.5, Norm.LINF), GumbelTopK(count=4), Full(), mean=False),
        },
        relation,
        population=500,
        unit="patient",
    )


@pytest.fixture(scope="module")
def plan():
    return calibrate(make_plan(), 1.5, 1e-5)


@pytest.fixture(scope="module")
def report(plan):
    return PrivacyReport.from_plan(
        plan,
        certify(plan.event(), 1e-5, plan.relation),
        NoiseSource.from_os(),
        public=["the number of patients, 500", "the class labels"],
        paper_claim=PaperClaim(0.5, "Theorem 5.2"),
        notes=["clipped 1 & 2"],
    )


def test_report_says_what_the_plan_and_the_certificate_say(plan, report):
    certificate = certify(plan.event(), 1e-5, ADD)
    assert (report.epsilon, report.delta) == (certificate.epsilon, 1e-5)
    assert (report.relation, report.unit, report.accountant) == (ADD, "patient", "rdp")
    assert report.discretisation is None
    assert report.event == plan.event()
    gradient, correction, support = report.releases
    assert (gradient.name, gradient.mechanism, gradient.times) == ("gradient", "Gaussian", 20)
    assert gradient.sampling == "Poisson(rate=0.1)"
    assert gradient.noise_multiplier == plan.releases["gradient"].mechanism.multiplier
    assert correction.noise_multiplier == pytest.approx(2 * gradient.noise_multiplier)
    assert gradient.sensitivity == "3 (L2)"
    assert correction.sensitivity == "follows released values (L2)"
    assert support.sensitivity == "0.5 (Linf)"
    assert support.mechanism == "GumbelTopK"


def test_sensitivities_are_those_of_the_relation():
    plan = calibrate(make_plan(REPLACE), 1.5, 1e-5)
    report = PrivacyReport.from_plan(plan, certify(plan.event(), 1e-5, REPLACE), NoiseSource.from_os())
    assert report.releases[0].sensitivity == "6 (L2)"
    assert "replaced by any other" in report.guarantee
    assert "replace-one one patient" in repr(report)


def test_private_noise_is_private(report):
    assert report.is_private
    assert report.status == "private"
    assert report.noise_source == NoiseSource.from_os().description
    assert "left out" in report.guarantee
    assert "e^1.5," in report.guarantee


def test_seeded_noise_is_never_called_private(plan):
    certificate = certify(plan.event(), 1e-5, ADD)
    seeded = PrivacyReport.from_plan(plan, certificate, NoiseSource.seeded_not_private(7))
    assert not seeded.is_private
    assert seeded.status == "seeded (not private)"
    assert "does not hold" in seeded.guarantee
    for text in (repr(seeded), seeded.to_html(), seeded._repr_html_(), seeded.to_json()):
        assert "seeded (not private)" in text


def test_a_run_without_noise_guarantees_nothing():
    plan = make_plan().at(0.0)
    report = PrivacyReport.from_plan(plan, certify(plan.event(), 1e-5, ADD), NoiseSource.from_os())
    assert report.status == "not private (no noise)"
    assert report.is_private is False
    assert report.guarantee.startswith("Nothing is guaranteed")
    assert json.loads(report.to_json())["epsilon"] == "inf"
    assert PrivacyReport.from_json(report.to_json()) == report


def test_a_certificate_for_another_relation_is_refused(plan):
    with pytest.raises(PlanError, match="replace-one"):
        PrivacyReport.from_plan(plan, certify(plan.event(), 1e-5, REPLACE), NoiseSource.from_os())


def test_an_uncalibrated_plan_has_no_report():
    certificate = certify(make_plan().at(1.0).event(), 1e-5, ADD)
    with pytest.raises(PlanError, match="multipliers"):
        PrivacyReport.from_plan(make_plan(), certificate, NoiseSource.from_os())


def test_json_round_trip(report):
    again = PrivacyReport.from_json(report.to_json())
    assert again == report
    assert again.to_dict() == {**report.to_dict(), "status": "unverified copy"}
    assert not again.is_private
    assert report.to_json().startswith('{\n  "format"')
    assert "{\n  &#34;type&#34;" in report.to_html()
    assert PrivacyReport.from_dict(report.to_dict()) == report


def test_grid_survives_the_round_trip():
    plan = calibrate(Plan({"g": Release(Sum(), Gaussian(), Poisson(0.1), times=9)}, ADD, 500), 1.0, 1e-5)
    report = PrivacyReport.from_plan(plan, certify(plan.event(), 1e-5, ADD), NoiseSource.from_os())
    assert report.discretisation == 1e-4
    assert report.paper_claim is None
    assert PrivacyReport.from_json(report.to_json()) == report
    assert "grid 0.0001" in report.to_html()


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", "1", '"x"', "[" * 5000])
def test_text_that_is_no_report_is_refused(text):
    with pytest.raises(InvalidInputError, match="Expected a privacy report"):
        PrivacyReport.from_json(text)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("event", {"type": "os.system"}),
        ("relation", "friends"),
        ("epsilon", None),
        ("delta", "small"),
        ("releases", [{"name": "x"}]),
        ("releases", 3),
        ("public", None),
        ("paper_claim", {"epsilon": 1}),
        ("format", 3),
        ("discretisation", "fine"),
    ],
)
def test_tampered_reports_are_refused(report, field, value):
    with pytest.raises(InvalidInputError, match="Expected"):
        PrivacyReport.from_dict({**report.to_dict(), field: value})


@pytest.mark.parametrize("field", ["epsilon", "event", "seeded", "format", "notes"])
def test_incomplete_reports_are_refused(report, field):
    data = report.to_dict()
    del data[field]
    with pytest.raises(InvalidInputError):
        PrivacyReport.from_dict(data)


def test_a_seeded_report_cannot_be_read_back_as_private(report):
    assert not PrivacyReport.from_dict({**report.to_dict(), "seeded": True}).is_private


def test_repr_is_a_few_readable_lines(report):
    lines = repr(report).splitlines()
    assert lines[0] == f"PrivacyReport: private, epsilon = {at_most(report.epsilon)}, delta = 1e-05"
    assert lines[1].startswith("  add-remove one patient; rdp accounting; AES-128")
    assert lines[2].startswith("  gradient: 20 x Gaussian, Poisson(rate=0.1), multiplier ")
    assert lines[2].endswith("sensitivity 3 (L2)")
    assert lines[5] == "  assumed public: the number of patients, 500; the class labels"
    assert lines[6] == "  Theorem 5.2 claims epsilon = 0.5"
    assert lines[7] == "  note: clipped 1 & 2"
    assert len(lines) == 8


def test_html_is_one_page_without_scripts_or_links(report):
    page = report.to_html()
    assert page.startswith("<!doctype html>")
    assert page.count("<html") == page.count("</html>") == 1
    assert "<script" not in page
    assert not re.search(r"(src|href)=", page)
    for text in (
        "1.5",
        "add-remove one patient",
        "gradient",
        "Poisson(rate=0.1)",
        "the class labels",
        "Theorem 5.2",
    ):
        assert text in page
    assert "clipped 1 &amp; 2" in page
    assert "&#34;zcdp&#34;" in page


def test_card_is_a_fragment_of_the_page(report):
    card = report._repr_html_()
    assert card.startswith("<section")
    assert "<html" not in card
    assert card in report.to_html()


def test_names_cannot_smuggle_markup(plan):
    evil = '<img src=x onerror="alert(1)">'
    report = PrivacyReport.from_plan(
        plan,
        certify(plan.event(), 1e-5, ADD),
        NoiseSource.from_os(),
        public=[evil],
        notes=[evil],
        paper_claim=PaperClaim(1.0, evil),
    )
    assert "<img" not in report.to_html()
    assert "<img" not in report._repr_html_()


def test_reports_are_frozen(report):
    with pytest.raises(AttributeError):
        report.epsilon = math.pi


@pytest.mark.parametrize(("epsilon", "delta"), [(1.5, math.nan), (math.nan, 1e-5), (-3.0, 1e-5), (1.5, 7.0)])
def test_numbers_that_are_no_guarantee_cannot_be_reported(report, epsilon, delta):
    with pytest.raises(InvalidInputError, match="Expected a guarantee"):
        replace(report, epsilon=epsilon, delta=delta)


def test_a_report_cannot_state_less_than_its_events_certify(report):
    with pytest.raises(InvalidInputError, match="cannot state less"):
        replace(report, epsilon=0.9 * report.epsilon)


def test_a_report_of_a_later_format_says_what_to_do(report):
    with pytest.raises(InvalidInputError, match="Upgrade sordino"):
        PrivacyReport.from_dict({**report.to_dict(), "format": 99})


def test_nobody_can_forget_to_say_whether_the_noise_was_seeded(report):
    with pytest.raises(TypeError, match="seeded"):
        PrivacyReport(1.0, 1e-5, ADD, "record", "pld", report.event, (), "the system")


def test_a_noiseless_report_cannot_be_edited_to_another_delta():
    rows = np.random.default_rng(0).normal(size=(300, 3)) / 3
    report = PCA(2, epsilon=float("inf"), data_norm=1.0).fit(rows).privacy_
    with pytest.raises(InvalidInputError):
        PrivacyReport.from_dict({**report.to_dict(), "delta": 0.0})


def test_a_copy_of_a_private_report_never_says_private():
    rows = np.random.default_rng(0).normal(size=(300, 3)) / 3
    report = PCA(2, epsilon=1.0, data_norm=1.0).fit(rows).privacy_
    assert report.status == "private"
    copy = PrivacyReport.from_json(report.to_json())
    assert copy.status == "unverified copy"
    assert not copy.is_private


def test_a_step_that_paid_nothing_or_is_not_proven_takes_the_promise_away(plan):
    report = PrivacyReport.from_plan(plan, certify(plan.event(), 1e-5, ADD), NoiseSource.from_os())
    unpaid = replace(report, unpaid=("a scaler read all rows",))
    assert unpaid.status == "not private (a step reads the records and paid nothing)"
    assert unpaid.guarantee == "Nothing is guaranteed, because of a scaler read all rows."
    assert "paid nothing: a scaler read all rows" in repr(unpaid)
    unproven = replace(report, unproven=("Wishart",))
    assert unproven.status == "not private (parts of it are not proven)"
    assert unproven.guarantee == "Nothing is guaranteed here: not proven are Wishart."
    assert "not proven here: Wishart" in repr(unproven)


@pytest.mark.parametrize("delta", [0.0, 1.0, 1.5, -0.1])
def test_a_report_needs_a_delta_between_zero_and_one(plan, delta):
    report = PrivacyReport.from_plan(plan, certify(plan.event(), 1e-5, ADD), NoiseSource.from_os())
    with pytest.raises(InvalidInputError, match="delta in"):
        replace(report, delta=delta)


def test_a_report_of_no_loss_at_all_can_be_made(plan):
    report = PrivacyReport.from_plan(plan, certify(plan.event(), 1e-5, ADD), NoiseSource.from_os())
    nothing = replace(report, epsilon=0.0, event=dp.NoOpDpEvent(), releases=())
    assert nothing.is_private


def test_json_holds_no_number_that_other_readers_refuse(plan):
    report = PrivacyReport.from_plan(plan, certify(plan.event(), 1e-5, ADD), NoiseSource.from_os())
    with pytest.raises(ValueError, match="JSON"):
        replace(report, discretisation=math.inf).to_json()
