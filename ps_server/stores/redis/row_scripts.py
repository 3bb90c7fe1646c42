"""Lua scripts that read and write rows in Redis, some thousands by each call. records.py explains records and fields.

Every script gets hashes of rows as keys, and as arguments the number of rows in each hash (uint16, packed) and the
names of all rows, hash by hash (the field and the last byte of the address, packed): packed arguments spare Redis and
its client a string per row. All rows of a hash, or 2,000 if there are more, are read by one command and written by one.

The partition of a hash, in braces, names the other keys that a script touches: they share the hash slot, so wherever
the script may touch the hash, it may touch them.
"""

from esd.ps_server.stores.redis.scripts import FENCED

# each_hash(first, counts, names, visit): calls visit(key, count, fields, values, at) for every hash from KEYS[first];
# `at` rows lie in the hashes before it.
_HASHES = b"""
local byte, call, sub = string.byte, redis.call, string.sub
local function each_hash(first, counts, names, visit)
  local at = 0
  for k = first, first + #counts / 2 - 1 do
    local low, high = byte(counts, 2 * (k - first) + 1, 2 * (k - first) + 2)
    local count, fields = low + 256 * high, {}
    for i = 1, count do fields[i] = sub(names, 7 * (at + i) - 6, 7 * (at + i) - 1) end
    visit(KEYS[k], count, fields, call('HMGET', KEYS[k], unpack(fields)), at)
    at = at + count
  end
end
"""

# find(value, last): where the record of the row with this last byte begins in the value of its field, and its size;
#   nil if it is not there.
# version_at(records, at): the version of the record there, 0 if it is cut short; size_at: its size.
# The global `short` is the size of a record with a small version.
_RECORDS = b"""
local short
local function size_at(records, at)
  return (byte(records, at + 3) or 0) < 128 and short or short + 4
end
local function find(value, last)
  local at = 1
  while at <= #value do
    local size = size_at(value, at)
    if byte(value, at) == last then return at, size end
    at = at + size
  end
end
local function version_at(records, at)
  local low, middle, high = byte(records, at + 1, at + 3)
  if not high then return 0 end
  if high < 128 then return low + 256 * middle + 65536 * high end
  if #records < at + 7 then return 0 end
  return low + 256 * middle + 65536 * (high - 128) + 8388608 * struct.unpack('<I4', records, at + 4)
end
"""

# Changes of one hash after the other, each written by one command. No two changes are of one field.
#   begin(key): begins a hash.
#   put(field, stored, name, record): replaces the record of the row with this name in a field whose value is `stored`
#     ('' if there is none); '' removes it.
#   finish(): writes the hash.
#   flush(): writes the counters of the partition, even if nothing has changed: WAIT only waits for writes of its own
#     connection, and a push that is repeated because no replica confirmed it must wait again.
# `kept` is the prefix of the hashes that keep the first pre-image of each row; '' keeps none.
# A new hash of short values would be a list, which Redis searches from its beginning for every field, up to 512 fields
# in the default configuration. A long value makes it a table, which it stays until Redis loads it from its disk.
_CHANGES = b"""
local function store(hash, pairs_)
  local new = #pairs_[2] < 128 and call('EXISTS', hash) == 0
  if new then call('HSET', hash, '', string.rep(' ', 1024)) end
  call('HSET', hash, unpack(pairs_))
  if new then call('HDEL', hash, '') end
end
local kept, key, set, filled, gone, names, images, tag = ''
local rows, shared, trainings = 0, 0, 0
local function flush()
  if not tag then return end
  local counter = 'n:' .. tag
  if rows ~= 0 then call('HINCRBY', counter, 'rows', rows) end
  if shared ~= 0 then call('HINCRBY', counter, 'shared', shared) end
  call('HINCRBY', counter, 'trainings', string.format('%.0f', trainings))
  rows, shared, trainings = 0, 0, 0
end
local function begin(hash)
  local partition = sub(hash, 3, -3)
  if partition ~= tag then flush() tag = partition end
  key, set, filled, gone, names, images = hash, {}, 0, {}, {}, {}
end
local function put(field, stored, name, record)
  local before, after, at, size = '', stored .. record, find(stored, byte(name, 7))
  if at then
    before = sub(stored, at, at + size - 1)
    after = sub(stored, 1, at - 1) .. record .. sub(stored, at + size)
    rows = rows - 1
    trainings = trainings - version_at(before, 1) % 1073741824
    if #stored > #before then shared = shared - 1 end
  end
  if #record > 0 then
    rows = rows + 1
    trainings = trainings + version_at(record, 1) % 1073741824
    if #after > #record then shared = shared + 1 end
  end
  if after == '' then
    gone[#gone + 1] = field
  else
    set[filled + 1], set[filled + 2] = field, after
    filled = filled + 2
  end
  names[#names + 1], images[#images + 1] = name, before
end
local function finish()
  if #kept > 0 and #names > 0 then
    local generation, new, n = kept .. sub(key, 3), {}, 0
    local there = call('HMGET', generation, unpack(names))
    for i = 1, #names do
      if not there[i] then
        new[n + 1], new[n + 2] = names[i], images[i]
        n = n + 2
      end
    end
    if n > 0 then store(generation, new) end
  end
  if filled > 0 then store(key, set) end
  if #gone > 0 then call('HDEL', key, unpack(gone)) end
end
"""

# Reads rows. KEYS: hashes. ARGV: counts, names. Returns the values of the fields, a list for each hash.
READ = (
    _HASHES
    + b"""
local replies = {}
each_hash(1, ARGV[1], ARGV[2], function(_, _, _, values) replies[#replies + 1] = values end)
return replies
"""
)

# Reads versions. KEYS: hashes. ARGV: size of a short record, counts, names. Returns the first 8 bytes of each record,
# which hold its version, as one string; zeros where the row does not exist.
READ_VERSIONS = (
    _HASHES
    + _RECORDS
    + b"""
short = tonumber(ARGV[1])
local heads = {}
each_hash(1, ARGV[2], ARGV[3], function(_, count, _, values, at)
  for i = 1, count do
    local there = values[i] and find(values[i], byte(ARGV[3], 7 * (at + i)))
    local head = there and sub(values[i], there, there + 7) or ''
    heads[at + i] = #head == 8 and head or string.rep('\\0', 8)
  end
end)
return table.concat(heads)
"""
)

# Stores rows that are newer than the stored ones. KEYS[2...]: hashes. ARGV[3...]: prefix of the hashes of pre-images,
# size of a short record, counts, names, records. The first pre-image of a row is kept under its name; it is '' if the
# row did not exist. Returns a digit per row: 1 if it was stored, 0 if the stored one is as new. A row with a field of
# its own and a small version, as almost all have, is compared and replaced without calls of Lua functions, which would
# take as long as Redis' own work for the row.
WRITE_NEWER = (
    FENCED
    + _HASHES
    + _RECORDS
    + _CHANGES
    + b"""
kept, short = ARGV[3], tonumber(ARGV[4])
local packed, records, refused, start, keeps = ARGV[6], ARGV[7], {}, 1, #ARGV[3] > 0
each_hash(2, ARGV[5], packed, function(hash, count, fields, values, at)
  begin(hash)
  for i = 1, count do
    local stored, before, alone = values[i], 0, true
    local last, low, middle, high = byte(records, start, start + 3)
    local size, version = short, low + 256 * middle + 65536 * high
    if high > 127 then size, version = short + 4, version_at(records, start) end
    if stored then
      local there
      there, low, middle, high = byte(stored, 1, 4)
      alone = there == last and #stored == short and high < 128
      if alone then
        before = low + 256 * middle + 65536 * high
      else
        there = find(stored, last)
        before = there and version_at(stored, there) or 0
      end
    end
    if before >= version then
      refused[#refused + 1] = at + i
    else
      local record = sub(records, start, start + size - 1)
      if alone then
        set[filled + 1], set[filled + 2] = fields[i], record
        filled = filled + 2
        if not stored then rows = rows + 1 end
        trainings = trainings + version % 1073741824 - before
        if keeps then
          names[filled / 2], images[filled / 2] = sub(packed, 7 * (at + i) - 6, 7 * (at + i)), stored or ''
        end
      else
        put(fields[i], stored, sub(packed, 7 * (at + i) - 6, 7 * (at + i)), record)
      end
    end
    start = start + size
  end
  finish()
end)
flush()
if #refused == 0 then return string.rep('1', #packed / 7) end
local results = {}
for i = 1, #packed / 7 do results[i] = '1' end
for _, i in ipairs(refused) do results[i] = '0' end
return table.concat(results)
"""
)

# Removes rows that are below a version. KEYS[2...]: hashes. ARGV[3...]: prefix of the hashes of pre-images, size of a
# short record, counts, names, the version. Pre-images are kept as above. Returns the number of removed rows.
FORGET_OLDER = (
    FENCED
    + _HASHES
    + _RECORDS
    + _CHANGES
    + b"""
kept, short = ARGV[3], tonumber(ARGV[4])
local below, forgotten = tonumber(ARGV[7]), 0
each_hash(2, ARGV[5], ARGV[6], function(hash, count, fields, values, at)
  begin(hash)
  for i = 1, count do
    local stored, name = values[i], sub(ARGV[6], 7 * (at + i) - 6, 7 * (at + i))
    local there = stored and find(stored, byte(name, 7))
    if there and version_at(stored, there) < below then
      put(fields[i], stored, name, '')
      forgotten = forgotten + 1
    end
  end
  finish()
end)
flush()
return forgotten
"""
)

# Puts rows back to their pre-images. KEYS[2]: their hash. ARGV[3...]: size of a short record, the count, names; then
# one pre-image per row, '' if the row did not exist.
PUT_BACK = (
    FENCED
    + _HASHES
    + _RECORDS
    + _CHANGES
    + b"""
short = tonumber(ARGV[3])
each_hash(2, ARGV[4], ARGV[5], function(hash, count, fields, values)
  begin(hash)
  for i = 1, count do put(fields[i], values[i] or '', sub(ARGV[5], 7 * i - 6, 7 * i), ARGV[5 + i]) end
  finish()
end)
flush()
"""
)

# The record of a row in the earlier format, in which a row was an int64 version, the floats and the checksum.
_EARLIER = b"""
local function record_of(earlier, last)
  if #earlier < 8 then return earlier end
  local version = struct.unpack('<i8', earlier)
  local low, more = version % 8388608, math.floor(version / 8388608)
  local head = string.char(last) .. sub(struct.pack('<I4', low + (more > 0 and 8388608 or 0)), 1, 3)
  if more > 0 then head = head .. struct.pack('<I4', more) end
  return head .. sub(earlier, 9)
end
"""

# Moves rows of the earlier format into their hash. KEYS[2]: the hash; KEYS[3...]: the earlier keys. ARGV[3...]: size of
# a short record, count, names. The counters of the partition count these rows already.
CONVERT_ROWS = (
    FENCED
    + _HASHES
    + _RECORDS
    + _CHANGES
    + _EARLIER
    + b"""
short = tonumber(ARGV[3])
each_hash(2, ARGV[4], ARGV[5], function(hash, count, fields, values)
  begin(hash)
  for i = 1, count do
    local earlier, name = call('GET', KEYS[2 + i]), sub(ARGV[5], 7 * i - 6, 7 * i)
    if earlier then put(fields[i], values[i] or '', name, record_of(earlier, byte(name, 7))) end
  end
  finish()
end)
rows, trainings = 0, 0
flush()
redis.call('UNLINK', unpack(KEYS, 3))
"""
)

# Moves pre-images of the earlier format. KEYS[2...]: their new hash, their earlier hash. ARGV[3...]: names; then the
# ids, which are the earlier fields.
CONVERT_PRE_IMAGES = (
    FENCED
    + b"local byte, call, sub = string.byte, redis.call, string.sub"
    + _EARLIER
    + b"""
for i = 1, #ARGV - 3 do
  local earlier, name = call('HGET', KEYS[3], ARGV[3 + i]), sub(ARGV[3], 7 * i - 6, 7 * i)
  if earlier then
    call('HSET', KEYS[2], name, #earlier > 0 and record_of(earlier, byte(name, 7)) or '')
    call('HDEL', KEYS[3], ARGV[3 + i])
  end
end
"""
)
