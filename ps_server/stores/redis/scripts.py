"""Lua scripts that Redis runs. Each call is atomic and may be repeated without harm.

Every script that writes begins with `FENCED`: it does nothing unless the sender's claim is the one recorded in the
fence (claim.py). KEYS[1] is the key of the fence, ARGV[1] and ARGV[2] are shard and token.
"""

# ESDTAKEN: another server has claimed the shard since. ESDGONE: no server has, so Redis has lost the claim.
FENCED = b"""
local owner = redis.call('HGET', KEYS[1], ARGV[1])
if owner ~= ARGV[2] then
  if redis.call('EXISTS', KEYS[1]) == 1 then return redis.error_reply('ESDTAKEN another server has claimed it') end
  return redis.error_reply('ESDGONE no claim is there')
end
"""

# Checks that the sender's claim is in force. KEYS: all claims.
CONFIRM = FENCED

# Runs one command that writes. KEYS[2]: its key. ARGV[3...]: its name, and the arguments after the key.
WRITE = FENCED + b"return redis.call(ARGV[3], KEYS[2], unpack(ARGV, 4))"

# Removes keys of one slot: KEYS[2...].
REMOVE = FENCED + b"return redis.call('UNLINK', unpack(KEYS, 2))"

# Claims a shard. KEYS: all claims, a hash: <shard> -> token, <shard>:of -> number of shards, <shard>:until -> Redis'
# milliseconds, <shard>:process, claims -> the number of claims so far. ARGV: shard, number of shards, a random text,
# milliseconds to live, process; then tokens of claims whose processes have died. Returns the token, or a list that
# describes a live claim in the way: of the same shard, or of any shard if the numbers of shards differ.
# KEYS[2], on a single server: a counter of the claims, which watched.py watches.
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
if KEYS[2] then redis.call('INCR', KEYS[2]) end
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

# Counts the rows that are missing in partitions, given the counters of their rows. KEYS: for each partition its
# counters and its hashes of rows. ARGV: number of hashes per partition. There are `shared` more rows than fields.
MISSING_ROWS = b"""
local missing, hashes = 0, tonumber(ARGV[1])
for k = 1, #KEYS, 1 + hashes do
  local counts = redis.call('HMGET', KEYS[k], 'rows', 'shared')
  local left = (counts[1] or 0) - (counts[2] or 0)
  for i = 1, hashes do left = left - redis.call('HLEN', KEYS[k + i]) end
  if left > 0 then missing = missing + left end
end
return missing
"""
