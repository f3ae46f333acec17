CREATE TABLE author (
    id INTEGER PRIMARY KEY,
    name VARCHAR(200) NOT NULL,
    born DATE
);

CREATE TABLE book (
    id INTEGER PRIMARY KEY,
    author_id INTEGER NOT NULL REFERENCES author (id),
    title VARCHAR(300) NOT NULL,
    pages INTEGER CHECK (pages > 0)
);

CREATE INDEX book_by_author ON book (author_id);

INSERT INTO author (id, name, born) VALUES (1, 'A. Writer', '1921-04-05');
INSERT INTO book (id, author_id, title, pages) VALUES (1, 1, 'The Long Road', 312);

SELECT a.name, COUNT(b.id) AS books, SUM(b.pages) AS pages
  FROM author a
  LEFT JOIN book b ON b.author_id = a.id
 GROUP BY a.name
HAVING COUNT(b.id) > 0
 ORDER BY pages DESC;
