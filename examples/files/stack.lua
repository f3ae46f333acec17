local Stack = {}
Stack.__index = Stack

function Stack.new()
  return setmetatable({ items = {}, size = 0 }, Stack)
end

function Stack:push(item)
  self.size = self.size + 1
  self.items[self.size] = item
end

function Stack:pop()
  if self.size == 0 then
    return nil, "empty"
  end
  local item = self.items[self.size]
  self.items[self.size] = nil
  self.size = self.size - 1
  return item
end

local stack = Stack.new()
for i = 1, 3 do
  stack:push(i * i)
end
while true do
  local item = stack:pop()
  if not item then break end
  print(string.format("%d", item))
end

return Stack
