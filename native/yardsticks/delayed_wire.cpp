// Cables with a delay, for kernels without a queue that delays (netem): each is a pair of network devices (TAP) in two
// network namespaces, and a frame that one of them sends arrives at the other after the delay, or is lost.
//
//   delayed_wire MICROSECONDS LOSE_ONE_IN NAMESPACE DEVICE NAMESPACE DEVICE [two more of each for every other cable]
//
// LOSE_ONE_IN is 0 where no frame is lost. It prints "ready" when the devices exist, which they do until it ends.
//
// The kernel hands over TCP segments of one connection as one long frame (TCP segmentation offload), since a frame of
// its own for each packet would cost more processor time than the services at both ends. Loss is counted by packets.

#include <fcntl.h>
#include <linux/if_tun.h>
#include <malloc.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <deque>
#include <iostream>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "yardsticks/packets.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kLongestFrame = sizeof(CardHeader) + 65536 + 64;  // with the headers of a packet of 64 KiB
constexpr std::size_t kMostFrames = 65536;  // on their way in one direction; a sender's further ones are lost
constexpr timespec kTick{0, 100'000};       // frames that come or are due within it cost one wake-up
constexpr int kMemory = 1 << 30;            // bytes that are kept for the next frames, and not given back to the kernel
constexpr int kFramesInTurn = 64;           // read from one device before the others get their turn

[[noreturn]] void Fail(const std::string& what) { throw std::runtime_error(what + ": " + std::strerror(errno)); }

int Opened(const std::string& path, int flags) {
  const int file = open(path.c_str(), flags | O_CLOEXEC);
  if (file < 0) Fail(path);
  return file;
}

// Makes a device in a namespace, and returns the file of its frames.
int Device(const std::string& space, const std::string& name) {
  const int place = Opened("/run/netns/" + space, O_RDONLY);
  if (setns(place, CLONE_NEWNET) != 0) Fail(space);
  close(place);
  const int file = Opened("/dev/net/tun", O_RDWR | O_NONBLOCK);
  ifreq request{};
  name.copy(request.ifr_name, IFNAMSIZ - 1);
  request.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
  if (ioctl(file, TUNSETIFF, &request) != 0) Fail(name);
  if (ioctl(file, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4) != 0) Fail(name);
  return file;
}

struct Frame {
  Clock::time_point due;
  std::string data;
};

// One direction of a cable.
struct Lane {
  int from;
  int to;
  std::deque<Frame> frames;

  // Delivers the frames that are due.
  void Deliver(Clock::time_point now) {
    while (!frames.empty() && frames.front().due <= now) {
      const std::string& data = frames.front().data;
      if (write(to, data.data(), data.size()) < 0 && errno == EAGAIN) return;
      frames.pop_front();
    }
  }
};

}  // namespace

int main(int argc, char** argv) try {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() < 6 || (words.size() - 2) % 4 != 0) throw std::runtime_error("see the head of delayed_wire.cpp");
  const auto delay = std::chrono::microseconds(std::stoul(words[0]));
  const unsigned long lose_one_in = std::stoul(words[1]);
  mallopt(M_TRIM_THRESHOLD, kMemory);
  mallopt(M_MMAP_THRESHOLD, kMemory);
  const sched_param first{1};
  sched_setscheduler(0, SCHED_FIFO, &first);  // where it may, so that load does not lengthen the delay
  std::mt19937 random(1);
  const auto lost = [&] { return lose_one_in != 0 && random() % lose_one_in == 0; };
  std::vector<Lane> lanes;
  std::vector<pollfd> polled;
  for (std::size_t at = 2; at < words.size(); at += 4) {
    const int ends[] = {Device(words[at], words[at + 1]), Device(words[at + 2], words[at + 3])};
    for (const int way : {0, 1}) {
      lanes.push_back({ends[way], ends[1 - way], {}});
      polled.push_back({ends[way], POLLIN, 0});
    }
  }
  std::cout << "ready" << std::endl;

  std::array<char, kLongestFrame> frame;
  for (;;) {
    const Clock::time_point now = Clock::now();
    Clock::time_point next = now + std::chrono::milliseconds(100);
    for (Lane& lane : lanes) {
      lane.Deliver(now);
      if (!lane.frames.empty()) next = std::min(next, lane.frames.front().due);
    }
    nanosleep(&kTick, nullptr);
    const auto pause = std::max(std::chrono::nanoseconds(next - Clock::now()), std::chrono::nanoseconds(0));
    const timespec wait{0, static_cast<long>(pause.count())};
    if (ppoll(polled.data(), polled.size(), &wait, nullptr) <= 0) continue;
    for (std::size_t at = 0; at < lanes.size(); ++at) {
      if ((polled[at].revents & POLLIN) == 0) continue;
      for (int turn = 0; turn < kFramesInTurn; ++turn) {
        const ssize_t length = read(lanes[at].from, frame.data(), frame.size());
        if (length < 0) break;
        const auto due = Clock::now() + delay;
        for (std::string& part : Remaining({frame.data(), static_cast<std::size_t>(length)}, lost)) {
          if (lanes[at].frames.size() < kMostFrames) lanes[at].frames.push_back({due, std::move(part)});
        }
      }
    }
  }
} catch (const std::exception& error) {
  std::cerr << "delayed_wire: " << error.what() << std::endl;
  return 1;
}
