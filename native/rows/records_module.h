// The part of the Python module that native/rows/records.cpp defines.
#pragma once

#include <nanobind/nanobind.h>

namespace esd::rows {

void bind_records(nanobind::module_& m);

}  // namespace esd::rows
