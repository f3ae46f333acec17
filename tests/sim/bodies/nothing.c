/* A library that has nothing of what is looked for in it. */
extern const int bodies_nothing;
const int bodies_nothing = 0;
