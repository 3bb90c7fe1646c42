// Admission as Python sees it.
#pragma once

#include <nanobind/nanobind.h>

#include <utility>

#include "engine/batch/admission.h"

namespace esd {

// The admitted ids of a batch, and what a plan needs of the others.
class PythonAdmittedIds {
 public:
  explicit PythonAdmittedIds(AdmittedIds&& divided) : divided_(std::move(divided)) {}

  AdmittedIds& divided() { return divided_; }
  const InitialIds& initial() const { return divided_.initial; }

 private:
  AdmittedIds divided_;
};

void bind_admission(nanobind::module_& module);

}  // namespace esd
