// The teams of the device: one block, or a grid whose blocks are all resident (a cooperative launch).
#pragma once

#include "solver/hd.h"

namespace esd {

class BlockTeam {
 public:
  __device__ int size() const { return static_cast<int>(blockDim.x); }

  template <class Body>
  __device__ void each(int count, Body body) {
    for (int i = static_cast<int>(threadIdx.x); i < count; i += size()) body(i);
    __syncthreads();
  }

  template <class Body>
  __device__ void one(Body body) {
    if (threadIdx.x == 0) body();
    __syncthreads();
  }

  template <class Value>
  __device__ auto agree(Value value) {
    const auto agreed = value();
    __syncthreads();
    return agreed;
  }

  template <class Body>
  __device__ void lead(Body body) {
    body(*this);
  }
};

struct GridBarrier {  // zero before the launch
  unsigned arrived, generation;
};

class GridTeam {
 public:
  explicit __device__ GridTeam(GridBarrier* barrier) : barrier_(barrier) {}

  __device__ int size() const { return static_cast<int>(gridDim.x * blockDim.x); }

  template <class Body>
  __device__ void each(int count, Body body) {
    for (int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); i < count; i += size()) body(i);
    wait();
  }

  template <class Body>
  __device__ void one(Body body) {
    if (blockIdx.x == 0 && threadIdx.x == 0) body();
    wait();
  }

  template <class Value>
  __device__ auto agree(Value value) {
    const auto agreed = value();
    wait();
    return agreed;
  }

  // The other blocks wait.
  template <class Body>
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
      __threadfence();  // what this block wrote is seen before it arrives
      if (atomicAdd(&barrier_->arrived, 1) == gridDim.x - 1) {
        barrier_->arrived = 0;
        __threadfence();
        *generation = now + 1;
      } else {
        while (*generation == now) {
        }
      }
      __threadfence();  // and what the others wrote after it has left
    }
    __syncthreads();
  }

  GridBarrier* barrier_;
};

}  // namespace esd
