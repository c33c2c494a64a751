"""Declared schemas of the raw tables. Levels come from the documentation of each data set.

Bounds are round numbers from what a column means (a percentage, a rate, hours in a week). None of
them was computed from the data, so using them costs no privacy.
"""

from __future__ import annotations

from sordino.datasets.tables import Category, Number, Schema

_EDUCATION = (
    *("Preschool", "1st-4th", "5th-6th", "7th-8th", "9th", "10th", "11th", "12th", "HS-grad"),
    *("Some-college", "Assoc-voc", "Assoc-acdm", "Bachelors", "Masters", "Prof-school"),
    "Doctorate",
)
_COUNTRIES = (
    *("United-States", "Cambodia", "England", "Puerto-Rico", "Canada", "Germany"),
    *("Outlying-US(Guam-USVI-etc)", "India", "Japan", "Greece", "South", "China", "Cuba", "Iran"),
    *("Honduras", "Philippines", "Italy", "Poland", "Jamaica", "Vietnam", "Mexico", "Portugal"),
    *("Ireland", "France", "Dominican-Republic", "Laos", "Ecuador", "Taiwan", "Haiti", "Columbia"),
    *("Hungary", "Guatemala", "Nicaragua", "Scotland", "Thailand", "Yugoslavia", "El-Salvador"),
    *("Trinadad&Tobago", "Peru", "Hong", "Holand-Netherlands"),
)

# The list of adult.names without the work class Never-worked: who never worked has no occupation,
# so that record is incomplete and left out by the papers. 6 numbers + 98 levels = 104 columns.
ADULT = Schema(
    (
        Number("age", 0, 100),
        Category(
            "workclass",
            (
                *("Private", "Self-emp-not-inc", "Self-emp-inc", "Federal-gov", "Local-gov"),
                *("State-gov", "Without-pay"),
            ),
        ),
        Number("fnlwgt", 0, 1_500_000),
        Category("education", _EDUCATION),
        Number("education-num", 0, 16),
        Category(
            "marital-status",
            (
                *("Married-civ-spouse", "Divorced", "Never-married", "Separated", "Widowed"),
                *("Married-spouse-absent", "Married-AF-spouse"),
            ),
        ),
        Category(
            "occupation",
            (
                *("Tech-support", "Craft-repair", "Other-service", "Sales", "Exec-managerial"),
                *("Prof-specialty", "Handlers-cleaners", "Machine-op-inspct", "Adm-clerical"),
                *("Farming-fishing", "Transport-moving", "Priv-house-serv", "Protective-serv"),
                "Armed-Forces",
            ),
        ),
        Category(
            "relationship",
            ("Wife", "Own-child", "Husband", "Not-in-family", "Other-relative", "Unmarried"),
        ),
        Category("race", ("White", "Asian-Pac-Islander", "Amer-Indian-Eskimo", "Other", "Black")),
        Category("sex", ("Female", "Male")),
        Number("capital-gain", 0, 100_000, log=True),
        Number("capital-loss", 0, 5_000, log=True),
        Number("hours-per-week", 0, 100),
        Category("native-country", _COUNTRIES),
    )
)

_SERVICES = (
    *("aol", "auth", "bgp", "courier", "csnet_ns", "ctf", "daytime", "discard", "domain"),
    *("domain_u", "echo", "eco_i", "ecr_i", "efs", "exec", "finger", "ftp", "ftp_data", "gopher"),
    *("harvest", "hostnames", "http", "http_2784", "http_443", "http_8001", "imap4", "IRC"),
    *("iso_tsap", "klogin", "kshell", "ldap", "link", "login", "mtp", "name", "netbios_dgm"),
    *("netbios_ns", "netbios_ssn", "netstat", "nnsp", "nntp", "ntp_u", "other", "pm_dump"),
    *("pop_2", "pop_3", "printer", "private", "red_i", "remote_job", "rje", "shell", "smtp"),
    *("sql_net", "ssh", "sunrpc", "supdup", "systat", "telnet", "tftp_u", "tim_i", "time"),
    *("urh_i", "urp_i", "uucp", "uucp_path", "vmnet", "whois", "X11", "Z39_50"),
)
_FLAGS = ("OTH", "REJ", "RSTO", "RSTOS0", "RSTR", "S0", "S1", "S2", "S3", "SF", "SH")

# 38 numbers + 3 protocols + 70 services + 11 flags = 122 columns. Counts of one connection are
# unbounded, so they enter by their logarithm; windows of two seconds and of 100 connections have
# bounds by construction.
KDDCUP99 = Schema(
    (
        Number("duration", 0, 100_000, log=True),
        Category("protocol_type", ("tcp", "udp", "icmp")),
        Category("service", _SERVICES),
        Category("flag", _FLAGS),
        Number("src_bytes", 0, 1e9, log=True),
        Number("dst_bytes", 0, 1e9, log=True),
        Number("land", 0, 1),
        Number("wrong_fragment", 0, 3),
        Number("urgent", 0, 10),
        Number("hot", 0, 100, log=True),
        Number("num_failed_logins", 0, 10),
        Number("logged_in", 0, 1),
        Number("num_compromised", 0, 1_000, log=True),
        Number("root_shell", 0, 1),
        Number("su_attempted", 0, 2),
        Number("num_root", 0, 1_000, log=True),
        Number("num_file_creations", 0, 100, log=True),
        Number("num_shells", 0, 10),
        Number("num_access_files", 0, 10),
        Number("num_outbound_cmds", 0, 10),
        Number("is_host_login", 0, 1),
        Number("is_guest_login", 0, 1),
        Number("count", 0, 511),
        Number("srv_count", 0, 511),
        Number("serror_rate", 0, 1),
        Number("srv_serror_rate", 0, 1),
        Number("rerror_rate", 0, 1),
        Number("srv_rerror_rate", 0, 1),
        Number("same_srv_rate", 0, 1),
        Number("diff_srv_rate", 0, 1),
        Number("srv_diff_host_rate", 0, 1),
        Number("dst_host_count", 0, 255),
        Number("dst_host_srv_count", 0, 255),
        Number("dst_host_same_srv_rate", 0, 1),
        Number("dst_host_diff_srv_rate", 0, 1),
        Number("dst_host_same_src_port_rate", 0, 1),
        Number("dst_host_srv_diff_host_rate", 0, 1),
        Number("dst_host_serror_rate", 0, 1),
        Number("dst_host_srv_serror_rate", 0, 1),
        Number("dst_host_rerror_rate", 0, 1),
        Number("dst_host_srv_rerror_rate", 0, 1),
    )
)

# The task's table of attack types; the second line of each group occurs in the test set only.
KDD_DOS = (
    *("back", "land", "neptune", "pod", "smurf", "teardrop"),
    *("apache2", "mailbomb", "processtable", "udpstorm"),
)
KDD_OTHER = (
    *("buffer_overflow", "ftp_write", "guess_passwd", "imap", "ipsweep", "loadmodule", "multihop"),
    *("nmap", "perl", "phf", "portsweep", "rootkit", "satan", "spy", "warezclient", "warezmaster"),
    *("httptunnel", "mscan", "named", "ps", "saint", "sendmail", "snmpgetattack", "snmpguess"),
    *("sqlattack", "worm", "xlock", "xsnoop", "xterm"),
)
KDD_LABELS = ("normal", *KDD_DOS, *KDD_OTHER)


def _percent(name: str) -> Number:
    return Number(name, 0, 100)


def _amount(name: str) -> Number:
    return Number(name, 0, 10_000, log=True)


_CLUSTERS = tuple(f"{code:02d}" for code in range(1, 54))

DONOR_PVA = Schema(
    (
        Number("MONTHS_SINCE_ORIGIN", 0, 240),
        Number("DONOR_AGE", 0, 100, missing_column=True),
        Number("IN_HOUSE", 0, 1),
        Category("URBANICITY", ("C", "R", "S", "T", "U")),
        Category("SES", ("1", "2", "3", "4")),
        Category("CLUSTER_CODE", _CLUSTERS),
        Category("HOME_OWNER", ("H", "U")),
        Category("DONOR_GENDER", ("A", "F", "M", "U")),
        Number("INCOME_GROUP", 0, 7, missing_column=True),
        Number("PUBLISHED_PHONE", 0, 1),
        Category("OVERLAY_SOURCE", ("B", "M", "N", "P")),
        Number("MOR_HIT_RATE", 0, 250),
        Number("WEALTH_RATING", 0, 9, missing_column=True),
        Number("MEDIAN_HOME_VALUE", 0, 6_000),
        Number("MEDIAN_HOUSEHOLD_INCOME", 0, 1_500),
        _percent("PCT_OWNER_OCCUPIED"),
        Number("PER_CAPITA_INCOME", 0, 200_000, log=True),
        *(_percent(f"PCT_ATTRIBUTE{i}") for i in range(1, 5)),
        Number("PEP_STAR", 0, 1),
        Number("RECENT_STAR_STATUS", 0, 25),
        Category("RECENCY_STATUS_96NK", ("A", "E", "F", "L", "N", "S")),
        Number("FREQUENCY_STATUS_97NK", 0, 4),
        Number("RECENT_RESPONSE_PROP", 0, 1),
        _amount("RECENT_AVG_GIFT_AMT"),
        Number("RECENT_CARD_RESPONSE_PROP", 0, 1),
        _amount("RECENT_AVG_CARD_GIFT_AMT"),
        Number("RECENT_RESPONSE_COUNT", 0, 25),
        Number("RECENT_CARD_RESPONSE_COUNT", 0, 25),
        Number("MONTHS_SINCE_LAST_PROM_RESP", -12, 48, missing_column=True),
        Number("LIFETIME_CARD_PROM", 0, 100),
        Number("LIFETIME_PROM", 0, 250),
        _amount("LIFETIME_GIFT_AMOUNT"),
        Number("LIFETIME_GIFT_COUNT", 0, 100),
        _amount("LIFETIME_AVG_GIFT_AMT"),
        _amount("LIFETIME_GIFT_RANGE"),
        _amount("LIFETIME_MAX_GIFT_AMT"),
        _amount("LIFETIME_MIN_GIFT_AMT"),
        _amount("LAST_GIFT_AMT"),
        Number("CARD_PROM_12", 0, 25),
        Number("NUMBER_PROM_12", 0, 100),
        Number("MONTHS_SINCE_LAST_GIFT", 0, 36),
        Number("MONTHS_SINCE_FIRST_GIFT", 0, 360),
        _amount("FILE_AVG_GIFT"),
        Number("FILE_CARD_GIFT", 0, 50),
    )
)
