import { readFile } from "node:fs/promises";

export interface Book {
  readonly isbn: string;
  title: string;
  year?: number;
}

type Predicate<T> = (item: T) => boolean;

export class Store<T extends Book> {
  private readonly items: Map<string, T> = new Map();

  public add(item: T): void {
    this.items.set(item.isbn, item);
  }

  public find(test: Predicate<T>): T[] {
    return Array.from(this.items.values()).filter(test);
  }
}

export async function load(path: string): Promise<Store<Book>> {
  const store = new Store<Book>();
  const books: Book[] = JSON.parse(await readFile(path, "utf8")) as Book[];
  for (const book of books) {
    store.add(book);
  }
  return store;
}
