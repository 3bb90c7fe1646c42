// The parts of the Python module esd.native.wire, each in a file of its own.
#pragma once

#include <nanobind/nanobind.h>

namespace esd::wire {

void bind_columns(nanobind::module_& m);
void bind_plans(nanobind::module_& m);
void bind_frames(nanobind::module_& m);
void bind_reports(nanobind::module_& m);

}  // namespace esd::wire
