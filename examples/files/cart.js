'use strict';

const EventEmitter = require('events');

class Cart extends EventEmitter {
  constructor() {
    super();
    this.items = new Map();
  }

  add(name, price, count = 1) {
    const entry = this.items.get(name) || { price, count: 0 };
    entry.count += count;
    this.items.set(name, entry);
    this.emit('change', name);
    return this;
  }

  get total() {
    return [...this.items.values()].reduce((sum, { price, count }) => sum + price * count, 0);
  }
}

const cart = new Cart();
cart.on('change', (name) => console.log(`changed: ${name}`));
cart.add('apple', 0.5, 4).add('bread', 2.25);
console.log(cart.total.toFixed(2));

module.exports = { Cart };
