-- Makes wrk's requests: calls spread over many trials, each with its own key, no two calls equal.
-- Arguments: the body before the question and after it; a question with places for a name and a number; a file with one trial a line
-- (path, key, name); more header lines. For turns also: the reply that each next turn sends back, the number of simultaneous trials,
-- the number of turns that each has had, and the number of turns that it gets.

local before, after, question, trials, reply, set, had, turns
local count, sent = 0, 0

local function whole(trial, messages)
  local body = before .. messages .. after
  return trial.head .. #body .. "\r\n\r\n" .. body
end

function init(args)
  before, after, question, reply = args[1], args[2], args[3], args[6]
  set, had, turns = tonumber(args[7]), tonumber(args[8]), tonumber(args[9])
  trials = {}
  for line in io.lines(args[4]) do
    local path, key, name = line:match("^(%S+) (%S+) (%S+)$")
    local head = "POST " .. path .. " HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer " .. key .. "\r\n" .. args[5] .. "Content-Type: application/json\r\nContent-Length: "
    trials[#trials + 1] = { head = head, name = name }
  end
  count = #trials
end

-- Makes calls with one question each, to one trial after the other.
local function next_call()
  local trial = trials[sent % count + 1]
  sent = sent + 1
  return whole(trial, question:format(trial.name, sent))
end

-- Makes the next turn of a trial's conversation. So many others come in between that its last turn has long ended.
local function next_turn()
  local first = math.floor(sent / set / turns) * set % count
  local trial = trials[first + sent % set + 1]
  sent = sent + 1
  if not trial.messages then
    local parts = {}
    for turn = 1, had do parts[turn] = question:format(trial.name, turn) .. reply end
    trial.messages, trial.turn = table.concat(parts), had
  end
  trial.turn = trial.turn + 1
  local asked = trial.messages .. question:format(trial.name, trial.turn)
  trial.messages = asked .. reply
  return whole(trial, asked)
end

local looked_at = false

function request()
  -- wrk only inspects the first request and does not send it.
  if not looked_at then
    looked_at = true
    return whole(trials[1], question:format("nobody", 0))
  end
  if reply then return next_turn() end
  return next_call()
end

function done(summary, latency)
  local e = summary.errors
  io.write(string.format(
    '\nresult {"seconds":%f,"requests":%d,"bytes":%d,"connect":%d,"read":%d,"write":%d,"status":%d,"timeout":%d,"meanMs":%f,"p50Ms":%f,"p90Ms":%f,"p99Ms":%f,"maxMs":%f}\n',
    summary.duration / 1e6, summary.requests, summary.bytes, e.connect, e.read, e.write, e.status, e.timeout,
    latency.mean / 1e3, latency:percentile(50) / 1e3, latency:percentile(90) / 1e3, latency:percentile(99) / 1e3, latency.max / 1e3))
end
