// Teams of threads on the device: one block, or a grid whose blocks are all resident (a cooperative launch).
// cuda/host_teams.h defines the functions of a team.
#pragma once

#include "common/host_device.h"

namespace esd {

class BlockTeam {
 public:
  __device__ int size() const { return static_cast<int>(blockDim.x); }

  template <typename Body>
  __device__ void each(int count, Body body) {
    for (int i = static_cast<int>(threadIdx.x); i < count; i += size()) body(i);
    __syncthreads();
  }

  template <typename Body>
  __device__ void one(Body body) {
    if (threadIdx.x == 0) body();
    __syncthreads();
  }

  template <typename Value>
  __device__ auto agree(Value value) {
    const auto agreed = value();
    __syncthreads();
    return agreed;
  }

  template <typename Body>
  __device__ void lead(Body body) {
    body(*this);
  }
};

// Lies in global memory and is zero before the launch.
struct GridBarrier {
  unsigned arrived, generation;
};

class GridTeam {
 public:
  explicit __device__ GridTeam(GridBarrier* barrier) : barrier_(barrier) {}

  __device__ int size() const { return static_cast<int>(gridDim.x * blockDim.x); }

  template <typename Body>
  __device__ void each(int count, Body body) {
    for (int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); i < count; i += size()) body(i);
    wait();
  }

  template <typename Body>
  __device__ void one(Body body) {
    if (blockIdx.x == 0 && threadIdx.x == 0) body();
    wait();
  }

  template <typename Value>
  __device__ auto agree(Value value) {
    const auto agreed = value();
    wait();
    return agreed;
  }

  template <typename Body>
  __device__ void lead(Body body) {
    if (blockIdx.x == 0) {
      BlockTeam block;
      body(block);
    }
    wait();
  }

 private:
  __device__ void wait() {
    __syncthreads();
    if (threadIdx.x == 0) {
      volatile unsigned* generation = &barrier_->generation;
      const unsigned now = *generation;
      __threadfence();  // makes this block's writes visible before it arrives,
      if (atomicAdd(&barrier_->arrived, 1) == gridDim.x - 1) {
        barrier_->arrived = 0;
        __threadfence();
        *generation = now + 1;
      } else {
        while (*generation == now) {
        }
      }
      __threadfence();  // and the other blocks' writes visible to it before it continues
    }
    __syncthreads();
  }

  GridBarrier* barrier_;
};

}  // namespace esd
