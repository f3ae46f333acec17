package example.shapes

import kotlin.math.PI

sealed interface Shape {
    val area: Double
}

data class Circle(val radius: Double) : Shape {
    override val area: Double
        get() = PI * radius * radius
}

data class Rectangle(val width: Double, val height: Double) : Shape {
    override val area = width * height
}

fun describe(shape: Shape): String = when (shape) {
    is Circle -> "circle of ${shape.area}"
    is Rectangle -> "rectangle of ${shape.area}"
}

fun main() {
    val shapes = listOf(Circle(1.0), Rectangle(2.0, 3.5))
    shapes.sortedBy { it.area }.forEach { println(describe(it)) }
}
