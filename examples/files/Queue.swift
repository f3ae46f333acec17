import Foundation

public struct Queue<Element> {
    private var items: [Element] = []
    private var head = 0

    public init() {}

    public var isEmpty: Bool { head >= items.count }

    public mutating func push(_ item: Element) {
        items.append(item)
    }

    public mutating func pop() -> Element? {
        guard !isEmpty else { return nil }
        defer { head += 1 }
        return items[head]
    }
}

var queue = Queue<String>()
queue.push("first")
queue.push("second")
while let item = queue.pop() {
    print("item: \(item)")
}
