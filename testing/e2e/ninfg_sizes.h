#define COUNT 3
