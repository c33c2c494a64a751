"""The house rules that can be read off a syntax tree; `test_house_rules.py` applies them."""

import ast
import sys
from collections.abc import Iterator
from functools import cache

Finding = tuple[int, str]


@cache
def tree_of(source: str) -> ast.Module:
    """Return the syntax tree of a module, which all rules read and none changes."""
    return ast.parse(source)


# Where random numbers come from. A dotted name under one of these is a draw, or the means to one.
ORIGINS = (
    "random",
    "secrets",
    "randomgen",
    "numpy.random",
    "scipy.stats.qmc",
    "dask.array.random",
    "cupy.random",
    "jax.random",
    "torch.random",
    "torch.distributions",
    "torch.Generator",
    "torch.manual_seed",
    "torch.seed",
    "torch.rand",
    "torch.randn",
    "torch.randint",
    "torch.randperm",
    "torch.rand_like",
    "torch.randn_like",
    "torch.randint_like",
    "torch.normal",
    "torch.bernoulli",
    "torch.poisson",
    "torch.binomial",
    "torch.multinomial",
    "torch.cuda.manual_seed",
    "os.urandom",
    "os.getrandom",
    "ssl.RAND_bytes",
    "uuid.uuid4",
    "scipy.sparse.random",
    "scipy.sparse.random_array",
    "scipy.sparse.rand",
    "sklearn.utils.check_random_state",
    "sklearn.utils.random",
    "sklearn.utils.resample",
    "sklearn.utils.shuffle",
)

# Draws by method name, on an object of unknown kind: NumPy's Generator and RandomState, the
# standard library's Random, randomgen's bit generators.
# (Left out for what else bears the name: f, power.)
METHODS = frozenset(
    """
    binomial chisquare choice choices dirichlet exponential gamma gauss geometric gumbel
    hypergeometric integers laplace lognormal logseries multinomial multivariate_hypergeometric
    multivariate_normal negative_binomial noncentral_chisquare noncentral_f normal normalvariate
    pareto permutation permuted poisson rand randbytes randint randn random random_integers
    random_raw random_sample randrange ranf rayleigh sample shuffle standard_cauchy
    standard_exponential standard_gamma standard_normal standard_t triangular uniform vonmises
    wald weibull zipf
    """.split()  # noqa: SIM905
)
# Draws wherever they are found: SciPy's distributions, torch's in-place samplers and initialisers.
SAMPLERS = frozenset(
    """
    bernoulli_ cauchy_ exponential_ geometric_ kaiming_normal_ kaiming_uniform_ log_normal_
    normal_ orthogonal_ random_ rvs trunc_normal_ uniform_ xavier_normal_ xavier_uniform_
    """.split()  # noqa: SIM905
)

# A source of randomness from kernel/noise.py goes by one of these names wherever it is used.
SOURCES = frozenset({"noise", "_noise", "public", "_public"})


def random_draws(source: str) -> list[Finding]:
    """Return (line, what) of each random draw in a module, or import that makes one possible."""
    tree = tree_of(source)
    names = _aliases(tree)
    found: list[Finding] = []
    for node in ast.walk(tree):
        found += [(node.lineno, what) for what in _imported(node) if _is_origin(what)]
        if isinstance(node, ast.Attribute | ast.Name):
            what = _dotted(node, names)
            found += [(node.lineno, what)] if what and _is_origin(what) else []
        if isinstance(node, ast.Call):
            found += _call(node, names)
    return sorted(set(found))


def _is_origin(name: str) -> bool:
    return any(name == origin or name.startswith(origin + ".") for origin in ORIGINS)


def _aliases(tree: ast.AST) -> dict[str, str]:
    """Map each imported local name to the full name it stands for."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                names[alias.asname or first] = alias.name if alias.asname else first
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _dotted(node: ast.expr, names: dict[str, str]) -> str | None:
    """Return the full dotted name of an expression that starts at an imported name."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in names:
        return None
    return ".".join([names[node.id], *reversed(parts)])


def _call(node: ast.Call, names: dict[str, str]) -> list[Finding]:
    """Judge a call by the name of its method, or by the module that it imports."""
    function = node.func
    name = getattr(function, "attr", getattr(function, "id", ""))
    if name in {"import_module", "__import__", "getattr"}:
        texts = [a.value for a in node.args if isinstance(a, ast.Constant)]
        return [(node.lineno, t) for t in texts if isinstance(t, str) and _is_origin(t)]
    if not isinstance(function, ast.Attribute):
        return []
    # A function of an imported module (scipy.special.gamma) was judged by its full name.
    drawn = name in SAMPLERS or (name in METHODS and _dotted(function, names) is None)
    receiver = getattr(function.value, "attr", getattr(function.value, "id", ""))
    if not drawn or receiver in SOURCES:
        return []
    return [(node.lineno, f"{receiver or '...'}.{name}()")]


# A norm of data is taken in kernel/clip and nowhere else. Norms of released or public vectors go through
# kernel/arrays.py, so that any other norm is an offence.
NORMS = frozenset(
    """
    numpy.linalg.norm numpy.linalg.vector_norm numpy.hypot scipy.linalg.norm scipy.sparse.linalg.norm
    sklearn.utils.extmath.row_norms sklearn.preprocessing.normalize torch.norm torch.linalg.norm
    torch.linalg.vector_norm
    """.split()  # noqa: SIM905
)


def data_norms(source: str) -> list[Finding]:
    """Return (line, what) of each norm that a module takes by itself."""
    tree = tree_of(source)
    names = _aliases(tree)
    found: list[Finding] = []
    for node in ast.walk(tree):
        found += [(node.lineno, what) for what in _imported(node) if what in NORMS]
        if isinstance(node, ast.Attribute) and (what := _dotted(node, names)) in NORMS:
            found.append((node.lineno, what))
        if isinstance(node, ast.Call):
            found += _norm_by_hand(node, names)
    return sorted(set(found))


def _norm_by_hand(node: ast.Call, names: dict[str, str]) -> list[Finding]:
    """Judge a call that is a norm under another name: a method, an einsum, a sum of squares along rows."""
    name = getattr(node.func, "attr", "")
    if name in {"norm", "vector_norm"} and _dotted(node.func, names) is None:
        return [(node.lineno, "...norm()")]
    texts = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    if name == "einsum" and any(_is_row_square(text) for text in texts):
        return [(node.lineno, "einsum of a row with itself")]
    if name == "sum" and _is_along_rows(node) and _is_square(getattr(node.func, "value", None)):
        return [(node.lineno, "sum of squares of a row")]
    return []


def _is_row_square(text: str) -> bool:
    inputs, _, output = text.replace(" ", "").partition("->")
    first, _, second = inputs.partition(",")
    return first == second and output == first[:-1]


def _is_along_rows(node: ast.Call) -> bool:
    axes = [k.value for k in node.keywords if k.arg == "axis"] + node.args[:1]
    return any(ast.unparse(axis) in {"1", "-1"} for axis in axes)


def _is_square(node: ast.AST | None) -> bool:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        return ast.unparse(node.right) in {"2", "2.0"}
    return isinstance(node, ast.Call) and getattr(node.func, "attr", "") in {"square", "multiply", "power"}


# What the kernel may import from outside, and where: the rest of it runs on NumPy alone.
KERNEL_PACKAGES = {"numpy", "scipy", "numba"}
KERNEL_EXCEPTIONS = {
    "noise.py": {"randomgen", "mpmath"},  # exact rounding of the rare draws that doubles cannot decide
    "events.py": {"attr", "attrs"},  # dp-accounting's events are attrs classes; ours has to be one
}


def foreign_imports(source: str, file_name: str) -> list[Finding]:
    """Return (line, module) of each import that a module of the kernel may not make."""
    allowed = KERNEL_PACKAGES | KERNEL_EXCEPTIONS.get(file_name, set())
    nodes = ast.walk(tree_of(source))
    imports = [(node.lineno, name) for node in nodes for name in _imported(node)]
    return [(line, name) for line, name in imports if not _is_kernel_import(name, allowed)]


def _is_kernel_import(name: str, allowed: set[str]) -> bool:
    first, _, rest = name.partition(".")
    if first == "sordino":
        return rest.partition(".")[0] in {"kernel", "errors"}
    if first == "dp_accounting":
        return rest.startswith("dp_event") or rest.endswith("DpEvent")
    return first in allowed or first in sys.stdlib_module_names


# What only a mechanism or a sampling defines, and the modules whose classes are such.
PARTS = frozenset({"privatise", "privatise_exactly", "amplify"})
KINDS = frozenset(
    """
    Additive Mechanism Sampling Gaussian SymmetricGaussian Correlated Laplace NormGamma TiltedObjective
    GumbelTopK JointSelection LaplaceMax LaplacePeeling StableCounts
    Full Poisson FixedSize Disjoint Cyclic InTurn
    """.split()  # noqa: SIM905
)


SAMPLINGS = frozenset(["Sampling", "InTurn", "Full", "Poisson", "FixedSize", "Disjoint", "Cyclic"])


def mechanism_parts(source: str) -> list[Finding]:
    """Return (line, what) of each mechanism or sampling that a module defines or derives."""
    tree = tree_of(source)
    names = _aliases(tree)
    found: list[Finding] = []
    for node in ast.walk(tree):
        kinds = [base for base in _bases(node) if _is_kind(base, names)]
        found += [(node.lineno, f"subclass of {ast.unparse(base)}") for base in kinds]
        found += [(node.lineno, f"defines {name}") for name in _defined(node) if name in PARTS]
    return sorted(set(found))


def _bases(node: ast.AST) -> list[ast.expr]:
    """Return the bases of a class, or those in a call of `type`."""
    if isinstance(node, ast.ClassDef):
        return node.bases
    made = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "type" and len(node.args) == 3
    return list(node.args[1].elts) if made and isinstance(node.args[1], ast.Tuple) else []


def _is_kind(base: ast.expr, names: dict[str, str]) -> bool:
    full = _dotted(base, names) or ""
    return full.startswith("sordino.literature.") or (
        full.startswith("sordino.kernel") and full.rpartition(".")[2] in KINDS
    )


def _defined(node: ast.AST) -> Iterator[str]:
    """Yield the names that a statement gives to functions and attributes."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (getattr(target, "attr", getattr(target, "id", "")) for target in targets)
    elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "setattr":
        yield from (str(a.value) for a in node.args if isinstance(a, ast.Constant))


NOISES = frozenset(["normal", "laplace", "gumbel", "gamma", "rounded_gaussian"])


def noise_uses(source: str) -> list[Finding]:
    """Return (line, what) of each draw of noise, and of each use of a mechanism."""
    found = []
    for node in ast.walk(tree_of(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name, receiver = node.func.attr, ast.unparse(node.func.value).rpartition(".")[2]
            drawn = name in NOISES and receiver in {"noise", "_noise"}
            if drawn or name in PARTS:
                found.append((node.lineno, f"{receiver}.{name}()"))
    return sorted(found)


def noise_sources(source: str) -> list[Finding]:
    """Return (line, what) of each way to a source of noise, to a mechanism or to a curator's answer."""
    tree = tree_of(source)
    known = {"NoiseSource", "fresh_noise", "Curator", "Mechanism", "Additive"} | (KINDS - SAMPLINGS)
    nodes = list(ast.walk(tree))
    found = [(node.lineno, name) for node in nodes for name in _imported(node)]
    found = [(line, name) for line, name in found if name.rpartition(".")[2] in known]
    for node in nodes:
        if isinstance(node, ast.Attribute) and node.attr in known | {"noisy_total"}:
            found.append((node.lineno, node.attr))
        if isinstance(node, ast.arg) and node.arg.strip("_") == "noise":
            found.append((node.lineno, "an argument noise"))
    return sorted(found)


# What makes, books or states a guarantee; runs/ alone may do it.
PROMISES = frozenset(
    """
    Curator PrivacyReport Reservation Run calibrate certified_report certify certify_by from_plan reserve
    settle solve_scale
    """.split()  # noqa: SIM905
)
REPORT_NUMBERS = frozenset({"epsilon", "delta", "seeded", "event", "unpaid", "unproven", "copied"})


def promises(source: str) -> list[Finding]:
    """Return (line, what) of each call that calibrates, certifies, books, curates or makes a report."""
    tree = tree_of(source)
    names = _aliases(tree)
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        said = getattr(node.func, "attr", getattr(node.func, "id", ""))
        full = (_dotted(node.func, names) or said).rpartition(".")[2]
        keywords = {keyword.arg for keyword in node.keywords}
        edited = full == "replace" and "privacy" in ast.unparse(node) and keywords & REPORT_NUMBERS
        if full in PROMISES or edited:
            found.append((node.lineno, f"{full}()"))
    return sorted(found)


# What leads from a task to its records by another way than `run(task, rows, ask)`.
BY_HAND = frozenset(["Journal", "Promise", "RoundBook", "Run", "Stream", "Turn", "resumed"])
STEPS_OF_A_RUN = frozenset(["curate", "reserved"])


def ways_past_the_task(source: str) -> list[Finding]:
    """Return (line, what) of each name or call by which a module runs a plan itself."""
    found: list[Finding] = []
    for node in ast.walk(tree_of(source)):
        found += [(node.lineno, what) for what in _imported(node) if _is_by_hand(what)]
        if isinstance(node, ast.Attribute) and node.attr in BY_HAND - {"Run", "Stream"}:
            found.append((node.lineno, node.attr))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            receiver = ast.unparse(node.func.value)
            if node.func.attr in STEPS_OF_A_RUN:
                found.append((node.lineno, f"{receiver}.{node.func.attr}()"))
    return sorted(set(found))


def _is_by_hand(name: str) -> bool:
    return name.startswith("sordino.runs") and name.rpartition(".")[2] in BY_HAND
