"""Lua scripts that Redis runs. Each call is atomic and may be repeated without harm.

Every script that writes begins with `FENCED`: it does nothing unless the sender's claim is the one recorded in the
    fence
(claim.py). KEYS[1] is the key of the fence, ARGV[1] and ARGV[2] are shard and token.
"""

# ESDTAKEN: another server has claimed the shard since. ESDGONE: no server has, so Redis has lost the claim.
FENCED = b"""
local owner = redis.call('HGET', KEYS[1], ARGV[1])
if owner ~= ARGV[2] then
  if redis.call('EXISTS', KEYS[1]) == 1 then return redis.error_reply('ESDTAKEN another server has claimed it') end
  return redis.error_reply('ESDGONE no claim is there')
end
"""

# Runs one command that writes. KEYS[2]: its key. ARGV[3...]: its name, and the arguments after the key.
WRITE = FENCED + b"return redis.call(ARGV[3], KEYS[2], unpack(ARGV, 4))"

# Removes keys of one slot: KEYS[2...].
REMOVE = FENCED + b"return redis.call('UNLINK', unpack(KEYS, 2))"

# Claims a shard. KEYS: all claims, a hash: <shard> -> token, <shard>:of -> number of shards, <shard>:until -> Redis'
# milliseconds, <shard>:process, claims -> the number of claims so far. ARGV: shard, number of shards, a random text,
# milliseconds to live, process; then tokens of claims whose processes have died. Returns the token, or a list that
# describes a live claim in the way: of the same shard, or of any shard if the numbers of shards differ.
CLAIM = b"""
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local pairs_, fields, dead = redis.call('HGETALL', KEYS[1]), {}, {}
for i = 1, #pairs_, 2 do fields[pairs_[i]] = pairs_[i + 1] end
for i = 6, #ARGV do dead[ARGV[i]] = true end
for field, value in pairs(fields) do
  local shard = string.match(field, '^(%d+):until$')
  if shard and (shard == ARGV[1] or fields[shard .. ':of'] ~= ARGV[2]) then
    local left = tonumber(value) - now
    if left > 0 and not dead[fields[shard]] then
      return {shard, fields[shard .. ':of'], fields[shard], value, left, fields[shard .. ':process']}
    end
    redis.call('HDEL', KEYS[1], shard, field, shard .. ':of', shard .. ':process')
  end
end
local token = string.format('%016.0f', redis.call('HINCRBY', KEYS[1], 'claims', 1)) .. '-' .. ARGV[3]
redis.call('HSET', KEYS[1], ARGV[1], token, ARGV[1] .. ':of', ARGV[2],
  ARGV[1] .. ':until', string.format('%.0f', now + ARGV[4]), ARGV[1] .. ':process', ARGV[5])
return token
"""

# Renews a claim. KEYS: all claims. ARGV[3]: milliseconds to live from now.
RENEW_CLAIM = (
    FENCED
    + b"""
local time = redis.call('TIME')
local milliseconds = time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[3]
redis.call('HSET', KEYS[1], ARGV[1] .. ':until', string.format('%.0f', milliseconds))
"""
)

# Gives a claim back. KEYS: all claims.
LEAVE = (
    FENCED
    + b"""
redis.call('HDEL', KEYS[1], ARGV[1], ARGV[1] .. ':of', ARGV[1] .. ':until', ARGV[1] .. ':process')
"""
)

# Makes a claim known to the scripts of one slot of a cluster. KEYS: the fence. ARGV: shard, token, 1 if no server of
# another shard may write there. Tokens rise, so a late call does not displace the claim of a successor.
SET_FENCE = b"""
local known = ARGV[3] == '1' and redis.call('HVALS', KEYS[1]) or {redis.call('HGET', KEYS[1], ARGV[1]) or ''}
for _, token in ipairs(known) do
  if token > ARGV[2] then return redis.error_reply('ESDTAKEN another server has claimed it') end
end
if ARGV[3] == '1' then redis.call('DEL', KEYS[1]) end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
"""

# Reads versions. KEYS: rows. Returns the versions as one string of int64; 0 where the row does not exist.
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

# Stores rows that are newer than the stored ones. KEYS[2...]: rows. ARGV[3]: the prefix of the hashes of pre-images,
# '' to keep none; then one value per row. The first pre-image of a row is kept under its id; it is '' if the row did
# not exist. Returns a digit per row: 1 if it was stored, 0 if the stored one is as new. The counters are written even
# if no row is stored: WAIT only waits for writes of its own connection, and a push that is repeated because no replica
# confirmed it must wait again.
WRITE_NEWER = (
    FENCED
    + b"""
local results, added, prefix = {}, {}, ARGV[3]
for i = 2, #KEYS do
  local value = ARGV[i + 2]
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
    results[i - 1] = '1'
  else
    results[i - 1] = '0'
  end
end
for tag, sums in pairs(added) do
  if sums[1] > 0 then redis.call('HINCRBY', 'n:' .. tag, 'rows', sums[1]) end
  redis.call('HINCRBY', 'n:' .. tag, 'trainings', string.format('%.0f', sums[2]))
end
return table.concat(results)
"""
)

# Removes rows that are below a version. KEYS[2...]: rows. ARGV[3...]: the prefix of the hashes of pre-images, '' to
# keep none; the version. Pre-images are kept as above. Returns the number of removed rows.
FORGET_OLDER = (
    FENCED
    + b"""
local count, added, prefix, below = 0, {}, ARGV[3], tonumber(ARGV[4])
for i = 2, #KEYS do
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

# Puts rows back to their pre-images. KEYS[2...]: rows of one partition. ARGV[3...]: one pre-image per row, '' if the
# row did not exist.
PUT_BACK = (
    FENCED
    + b"""
local rows, trainings, tag = 0, 0, ''
for i = 2, #KEYS do
  local value = ARGV[i + 1]
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

# Saves the record of one shard. KEYS[2]: a table's history. ARGV[3...]: number of shards, the record. Returns 0 if
# the history belongs to another number of shards.
SAVE_RECORD = (
    FENCED
    + b"""
local shards = redis.call('HGET', KEYS[2], 'shards')
if shards and shards ~= ARGV[3] then return 0 end
redis.call('HSET', KEYS[2], 'shards', ARGV[3], ARGV[1], ARGV[4])
return 1
"""
)

# Replaces the records after a change of the number of shards. KEYS[2]: a table's history. ARGV[3...]: old number of
# shards, new number of shards, a record for each new shard. Only the first call has an effect.
RESHARD_RECORDS = (
    FENCED
    + b"""
if redis.call('HGET', KEYS[2], 'shards') ~= ARGV[3] then return end
redis.call('DEL', KEYS[2])
redis.call('HSET', KEYS[2], 'shards', ARGV[4])
for i = 5, #ARGV do redis.call('HSET', KEYS[2], i - 5, ARGV[i]) end
"""
)

# Counts how many keys a single Redis lacks, given the counters of its rows. KEYS: the counters of all tables. Keys of
# pre-images, parts and logs are not subtracted, so a loss of as many rows as there are such keys stays unseen.
MISSING_ROWS = b"""
local there = -redis.call('DBSIZE')
for i = 1, #KEYS do
  local rows = redis.call('HGET', KEYS[i], 'rows')
  if rows then there = there + 1 + rows end
end
return there
"""
