"""Lua scripts that Redis runs. Each call is atomic and may be repeated without harm."""

# Reads versions. KEYS: rows. Returns the versions as one string of int64; 0 where there is no row.
READ_VERSIONS = b"""
local versions = {}
for i = 1, #KEYS do
  local version = redis.call('GETRANGE', KEYS[i], 0, 7)
  versions[i] = #version == 8 and version or string.rep('\\0', 8)
end
return table.concat(versions)
"""

# The partition of a row's key, in braces, names the other keys that the scripts below touch: they share the row's hash
# slot, so wherever the script may touch the row, it may touch them.
_TAG = b"string.sub(KEYS[i], 3, -10)"

# Stores rows that are newer than the stored ones. KEYS: rows. ARGV: the prefix of the hashes of pre-images, '' to keep
# none; then one value per row. The first pre-image of a row is kept under its id; it is '' where there was no row.
# Returns a digit per row: 1 if it was stored, 0 if the stored one is as new. The counters are written even if no row is
# stored: WAIT waits for what its own connection has written, and a push that is repeated for want of a replica must
# wait again.
WRITE_NEWER = (
    b"""
local results, added, prefix = {}, {}, ARGV[1]
for i = 1, #KEYS do
  local value = ARGV[i + 1]
  local stored = redis.call('GETRANGE', KEYS[i], 0, 7)
  local before = #stored == 8 and struct.unpack('<i8', stored) or 0
  local version = struct.unpack('<i8', value)
  local tag = """
    + _TAG
    + b"""
  local sums = added[tag] or {0, 0}
  added[tag] = sums
  if before < version then
    if #prefix > 0 then
      redis.call('HSETNX', prefix .. tag, string.sub(KEYS[i], -8), redis.call('GET', KEYS[i]) or '')
    end
    redis.call('SET', KEYS[i], value)
    sums[1] = sums[1] + (#stored == 0 and 1 or 0)
    sums[2] = sums[2] + version % 2^30 - before % 2^30
    results[i] = '1'
  else
    results[i] = '0'
  end
end
for tag, sums in pairs(added) do
  if sums[1] > 0 then redis.call('HINCRBY', 'n:' .. tag, 'rows', sums[1]) end
  redis.call('HINCRBY', 'n:' .. tag, 'trainings', string.format('%.0f', sums[2]))
end
return table.concat(results)
"""
)

# Takes rows that are below a version out of the table. KEYS: rows. ARGV: the prefix of the hashes of pre-images, '' to
# keep none; the version. Pre-images are kept as above. Returns how many rows there were.
FORGET_OLDER = (
    b"""
local count, added, prefix, below = 0, {}, ARGV[1], tonumber(ARGV[2])
for i = 1, #KEYS do
  local stored = redis.call('GETRANGE', KEYS[i], 0, 7)
  local version = #stored == 8 and struct.unpack('<i8', stored) or below
  if version < below then
    local tag = """
    + _TAG
    + b"""
    if #prefix > 0 then redis.call('HSETNX', prefix .. tag, string.sub(KEYS[i], -8), redis.call('GET', KEYS[i])) end
    redis.call('UNLINK', KEYS[i])
    local sums = added[tag] or {0, 0}
    added[tag] = {sums[1] - 1, sums[2] - version % 2^30}
    count = count + 1
  end
end
for tag, sums in pairs(added) do
  redis.call('HINCRBY', 'n:' .. tag, 'rows', sums[1])
  redis.call('HINCRBY', 'n:' .. tag, 'trainings', string.format('%.0f', sums[2]))
end
return count
"""
)

# Puts rows back to their pre-images. KEYS: rows of one partition. ARGV: one pre-image per row, '' where there was no
# row.
PUT_BACK = (
    b"""
local rows, trainings, tag = 0, 0, ''
for i = 1, #KEYS do
  local value = ARGV[i]
  local stored = redis.call('GETRANGE', KEYS[i], 0, 7)
  tag = """
    + _TAG
    + b"""
  if #stored == 8 then
    rows = rows - 1
    trainings = trainings - struct.unpack('<i8', stored) % 2^30
  end
  if #value == 0 then
    redis.call('DEL', KEYS[i])
  else
    rows = rows + 1
    trainings = trainings + struct.unpack('<i8', value) % 2^30
    redis.call('SET', KEYS[i], value)
  end
end
redis.call('HINCRBY', 'n:' .. tag, 'rows', rows)
redis.call('HINCRBY', 'n:' .. tag, 'trainings', string.format('%.0f', trainings))
"""
)

# Saves the record of one shard. KEYS: a table's history. ARGV: number of shards, shard, its record. Returns 0 when the
# history is that of another number of shards.
SAVE_RECORD = b"""
local shards = redis.call('HGET', KEYS[1], 'shards')
if shards and shards ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'shards', ARGV[1], ARGV[2], ARGV[3])
return 1
"""

# Replaces the records after a change of the number of shards. KEYS: a table's history. ARGV: number of shards before,
# number of shards now, a record for each of them. Only the first call does anything.
RESHARD_RECORDS = b"""
if redis.call('HGET', KEYS[1], 'shards') ~= ARGV[1] then return end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'shards', ARGV[2])
for i = 3, #ARGV do redis.call('HSET', KEYS[1], i - 3, ARGV[i]) end
"""

# Gives up a shard. KEYS: who serves it. ARGV: who gives it up, if it is the same.
LEAVE = b"""
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
"""
