using System;
using System.Collections.Generic;
using System.Linq;

namespace Example.Stock
{
    public class Inventory
    {
        private readonly Dictionary<string, int> _counts = new Dictionary<string, int>();

        public int Total => _counts.Values.Sum();

        public void Add(string item, int count = 1)
        {
            if (string.IsNullOrEmpty(item))
            {
                throw new ArgumentException("an item needs a name", nameof(item));
            }
            _counts[item] = _counts.TryGetValue(item, out var old) ? old + count : count;
        }

        public static void Main(string[] args)
        {
            var inventory = new Inventory();
            foreach (var name in args)
            {
                inventory.Add(name);
            }
            Console.WriteLine($"{inventory.Total} items");
        }
    }
}
