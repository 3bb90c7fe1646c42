#include "engine/python/admission.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "common/arrays.h"
#include "engine/python/sample_ids.h"

namespace nb = nanobind;

namespace esd {
namespace {

// Calls release the GIL, and run one after another.
class PythonAdmission {
 public:
  PythonAdmission(std::vector<std::uint32_t> afters, std::uint64_t seed) : admission_(std::move(afters), seed) {}

  PythonAdmittedIds count(const Ids& ids, const std::optional<Lengths>& lengths) {
    return divide(ids, lengths, &Admission::count);
  }

  PythonAdmittedIds expect(const Ids& ids, const std::optional<Lengths>& lengths) {
    return divide(ids, lengths, &Admission::expect);
  }

  double error() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return admission_.error();
  }

  // A copy of the words. The memory of an earlier copy that is gone serves again: where the system gives a page at its
  // first use, 64 MiB of new pages take much longer than the copy.
  std::shared_ptr<std::uint64_t[]> copied_words() {
    const nb::gil_scoped_release released;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (copy_.use_count() != 1) copy_.reset(new std::uint64_t[Admission::kWords]);
    std::atomic_thread_fence(std::memory_order_acquire);  // the readers of the earlier copy have read it
    std::copy_n(admission_.words(), Admission::kWords, copy_.get());
    return copy_;
  }

  Admission& unlocked() { return admission_; }

 private:
  PythonAdmittedIds divide(const Ids& ids, const std::optional<Lengths>& lengths,
                           void (Admission::*way)(const SampleIds&, AdmittedIds&)) {
    const SampleIds given = sample_ids(ids, lengths);
    AdmittedIds divided;
    {
      const nb::gil_scoped_release released;
      const std::lock_guard<std::mutex> lock(mutex_);
      (admission_.*way)(given, divided);
    }
    return PythonAdmittedIds(std::move(divided));
  }

  std::mutex mutex_;
  Admission admission_;
  std::shared_ptr<std::uint64_t[]> copy_;
};

using Words = nb::ndarray<nb::numpy, std::uint64_t, nb::ndim<1>>;

// An array whose memory is a part of its owner.
Words view(std::uint64_t* values, std::size_t count, const nb::object& owner) { return {values, {count}, owner}; }
nb::ndarray<nb::numpy, const std::uint64_t, nb::ndim<1>> view(const std::vector<std::uint64_t>& values,
                                                              const nb::object& owner) {
  return {values.data(), {values.size()}, owner};
}

}  // namespace

void bind_admission(nb::module_& module) {
  nb::class_<PythonAdmittedIds>(module, "AdmittedIds")
      .def_prop_ro("ids", [](nb::object self) { return view(nb::cast<PythonAdmittedIds&>(self).divided().ids, self); })
      .def_prop_ro("lengths",
                   [](nb::object self) {
                     AdmittedIds& divided = nb::cast<PythonAdmittedIds&>(self).divided();
                     const std::size_t k = divided.initial.batch.samples;
                     const std::size_t fields = divided.initial.batch.fields;
                     return nb::ndarray<nb::numpy, const std::uint32_t, nb::ndim<2>>(divided.lengths.data(),
                                                                                     {k, fields}, self);
                   })
      .def_prop_ro("initial_ids",
                   [](nb::object self) { return view(nb::cast<PythonAdmittedIds&>(self).initial().ids, self); })
      .def_prop_ro("newly", [](PythonAdmittedIds& ids) { return ids.divided().newly; });
  nb::class_<PythonAdmission>(module, "Admission")
      .def(nb::init<std::vector<std::uint32_t>, std::uint64_t>(), nb::arg("afters"), nb::arg("seed"))
      .def("count", &PythonAdmission::count, nb::arg("ids").noconvert(), nb::arg("lengths").noconvert() = nb::none())
      .def("expect", &PythonAdmission::expect, nb::arg("ids").noconvert(), nb::arg("lengths").noconvert() = nb::none())
      .def_prop_ro("error", &PythonAdmission::error)
      .def_prop_ro("words",
                   [](nb::object self) {
                     return view(nb::cast<PythonAdmission&>(self).unlocked().words(), Admission::kWords, self);
                   })
      .def("copied_words",
           [](PythonAdmission& self) {
             auto held = std::make_unique<std::shared_ptr<std::uint64_t[]>>(self.copied_words());
             std::uint64_t* const words = held->get();
             const nb::capsule owner(held.get(), [](void* shared) noexcept {
               delete static_cast<std::shared_ptr<std::uint64_t[]>*>(shared);
             });
             held.release();
             return Words(words, {Admission::kWords}, owner);
           })
      .def_prop_ro("full", [](nb::object self) {
        return view(nb::cast<PythonAdmission&>(self).unlocked().full().data(), Admission::kRows, self);
      });
}

}  // namespace esd
