// The Python module esd.native.wire, whose interface is documented in esd/native/wire.pyi: messages that are read and
// written natively. Two messages have their writer in another module, which has the data: a plan in esd.native.engine,
// and an answer with rows in esd.native.rows.
#include "wire/module.h"

NB_MODULE(wire, m) {
  m.doc() = "Readers and writers of messages. See wire.pyi.";
  esd::wire::bind_columns(m);
  esd::wire::bind_plans(m);
  esd::wire::bind_frames(m);
  esd::wire::bind_reports(m);
}
