"""The dispatch engine for up to 128 workers: the classes of `esd.native.engine` with larger sets of workers."""

from esd.native.engine import Admission as Admission
from esd.native.engine import AdmittedIds as AdmittedIds
from esd.native.engine import BatchIds as BatchIds
from esd.native.engine import Bounded as Bounded
from esd.native.engine import CacheTooSmall as CacheTooSmall
from esd.native.engine import Engine as Engine
from esd.native.engine import HotSamples as HotSamples
from esd.native.engine import IterationColumns as IterationColumns
from esd.native.engine import OnDemand as OnDemand
from esd.native.engine import Proactive as Proactive
from esd.native.engine import PushAll as PushAll
from esd.native.engine import Replicated as Replicated
from esd.native.engine import Savepoint as Savepoint
from esd.native.engine import Uncached as Uncached
from esd.native.engine import Way as Way
