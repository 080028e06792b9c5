from pathlib import Path

import pytest

from node_agent.config import Config
from outrider.config import ConfigError, load


@pytest.mark.parametrize("period", [".inf", ".nan", "0", "-1", "1e300"])
def test_a_period_that_would_silence_a_probe_for_good_is_refused(tmp_path: Path, period: str) -> None:
    (tmp_path / "config.yaml").write_text(f"nvmlPeriodSeconds: {period}\n")
    with pytest.raises(ConfigError, match="nvmlPeriodSeconds"):
        load(Config, tmp_path / "config.yaml")
