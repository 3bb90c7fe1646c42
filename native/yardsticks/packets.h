// Loss among the packets of a frame that TCP segmentation offload has made of several ones.
//
// A frame is an Ethernet frame after the header of a virtual network card, as TAP devices pass it.

#pragma once

#include <arpa/inet.h>
#include <net/ethernet.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

// The header of a virtual network card (virtio_net_hdr of linux/virtio_net.h, which is no C++).
struct CardHeader {
  std::uint8_t flags;
  std::uint8_t gso_type;  // 0: the frame is one packet
  std::uint16_t hdr_len;
  std::uint16_t gso_size;
  std::uint16_t csum_start;
  std::uint16_t csum_offset;
};
static_assert(sizeof(CardHeader) == 10);

// The TCP packets of one frame, all of which have `size` bytes of payload but the last one.
class Packets {
 public:
  // `frame` has a length of segments in its header (gso_size).
  explicit Packets(std::string_view frame) : frame_(frame) {
    std::memcpy(&card_, frame.data(), sizeof(card_));
    tcp_at_ = sizeof(card_) + card_.csum_start;
    const auto tcp = Read<tcphdr>(tcp_at_);
    payload_at_ = tcp_at_ + 4 * std::size_t{tcp.doff};
    size_ = card_.gso_size;
  }

  std::size_t count() const { return (frame_.size() - payload_at_ + size_ - 1) / size_; }

  // Returns a frame with the packets first..last - 1.
  std::string Part(std::size_t first, std::size_t last) const {
    const std::size_t begin = payload_at_ + first * size_;
    const std::size_t end = std::min(payload_at_ + last * size_, frame_.size());
    std::string part(frame_.substr(0, payload_at_));
    part += frame_.substr(begin, end - begin);

    CardHeader card = card_;
    if (last - first == 1) card.gso_type = 0, card.gso_size = 0;
    std::memcpy(part.data(), &card, sizeof(card));

    auto ip = Read<iphdr>(kIpAt);
    ip.tot_len = htons(static_cast<std::uint16_t>(part.size() - kIpAt));
    ip.id = htons(static_cast<std::uint16_t>(ntohs(ip.id) + first));
    ip.check = 0;
    ip.check = static_cast<std::uint16_t>(~Sum(&ip, sizeof(ip)));
    std::memcpy(part.data() + kIpAt, &ip, sizeof(ip));

    auto tcp = Read<tcphdr>(tcp_at_);
    tcp.seq = htonl(static_cast<std::uint32_t>(ntohl(tcp.seq) + first * size_));
    if (last < count()) tcp.fin = tcp.psh = 0;
    // The card of the receiver would finish the checksum; the sum of addresses, protocol and length is there already.
    const std::uint16_t pseudo[] = {htons(IPPROTO_TCP), htons(static_cast<std::uint16_t>(part.size() - tcp_at_))};
    const std::uint32_t addresses = Sum(&ip.saddr, 8);
    tcp.check = Folded(addresses + pseudo[0] + pseudo[1]);
    std::memcpy(part.data() + tcp_at_, &tcp, sizeof(tcp));
    return part;
  }

 private:
  static constexpr std::size_t kIpAt = sizeof(CardHeader) + sizeof(ether_header);

  template <typename T>
  T Read(std::size_t at) const {
    T value;
    std::memcpy(&value, frame_.data() + at, sizeof(value));
    return value;
  }

  static std::uint16_t Folded(std::uint32_t sum) {
    while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
    return static_cast<std::uint16_t>(sum);
  }

  // The sum of 16-bit words, in the byte order of the network, of an even number of bytes.
  static std::uint16_t Sum(const void* data, std::size_t bytes) {
    std::uint32_t sum = 0;
    for (std::size_t at = 0; at < bytes; at += 2) {
      std::uint16_t word;
      std::memcpy(&word, static_cast<const char*>(data) + at, sizeof(word));
      sum += word;
    }
    return Folded(sum);
  }

  std::string_view frame_;
  CardHeader card_{};
  std::size_t tcp_at_ = 0;
  std::size_t payload_at_ = 0;
  std::size_t size_ = 0;
};

// Returns the frames that are left of a frame when some of its packets are lost: `lost` is asked once for each.
template <typename Lost>
std::vector<std::string> Remaining(std::string_view frame, const Lost& lost) {
  CardHeader card;
  std::memcpy(&card, frame.data(), sizeof(card));
  if (card.gso_type == 0) return lost() ? std::vector<std::string>{} : std::vector{std::string(frame)};

  const Packets packets(frame);
  std::vector<std::string> left;
  std::size_t first = 0;
  for (std::size_t packet = 0; packet < packets.count(); ++packet) {
    if (!lost()) continue;
    if (packet > first) left.push_back(packets.Part(first, packet));
    first = packet + 1;
  }
  if (first == 0) return {std::string(frame)};
  if (first < packets.count()) left.push_back(packets.Part(first, packets.count()));
  return left;
}
