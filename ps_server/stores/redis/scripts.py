"""Lua that Redis runs for blocks of rows. Each call is atomic, and may be repeated without harm."""

# KEYS: rows. Returns the versions as one string of int64; 0 where there is no row.
READ_VERSIONS = b"""
local versions = {}
for i = 1, #KEYS do
  local version = redis.call('GETRANGE', KEYS[i], 0, 7)
  versions[i] = #version == 8 and version or string.rep('\\0', 8)
end
return table.concat(versions)
"""

# KEYS: the bucket's row counter, the hash of pre-images, then rows. ARGV: whether to keep pre-images ('1'), then one
# value per row. The first pre-image of a row is kept, under its id; '' where there was none.
# Returns a digit per row: 0 the stored one is as new, 1 stored, 2 stored and there was none before.
WRITE_NEWER = b"""
local results, created, keep = {}, 0, ARGV[1] == '1'
for i = 3, #KEYS do
  local value = ARGV[i - 1]
  local stored = redis.call('GETRANGE', KEYS[i], 0, 7)
  local result = '0'
  if #stored == 0 then
    result = '2'
    created = created + 1
  elseif struct.unpack('<i8', stored) < struct.unpack('<i8', value) then
    result = '1'
  end
  if result ~= '0' then
    if keep then redis.call('HSETNX', KEYS[2], string.sub(KEYS[i], -8), redis.call('GET', KEYS[i]) or '') end
    redis.call('SET', KEYS[i], value)
  end
  results[i - 2] = result
end
if created > 0 then redis.call('INCRBY', KEYS[1], created) end
return table.concat(results)
"""

# KEYS: a bucket's row counter, then rows. ARGV: one pre-image per row, '' where there was none.
PUT_BACK = b"""
local removed = 0
for i = 2, #KEYS do
  local value = ARGV[i - 1]
  if #value == 0 then
    removed = removed + redis.call('DEL', KEYS[i])
  else
    redis.call('SET', KEYS[i], value)
  end
end
if removed > 0 then redis.call('DECRBY', KEYS[1], removed) end
return removed
"""
