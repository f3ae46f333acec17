`timescale 1ns / 1ps

module counter #(
    parameter WIDTH = 8
) (
    input  wire             clk,
    input  wire             reset,
    input  wire             enable,
    output reg  [WIDTH-1:0] value
);

    always @(posedge clk or posedge reset) begin
        if (reset)
            value <= {WIDTH{1'b0}};
        else if (enable)
            value <= value + 1'b1;
    end

endmodule

module counter_test;
    reg clk = 0, reset = 1, enable = 0;
    wire [7:0] value;

    counter #(.WIDTH(8)) dut (.clk(clk), .reset(reset), .enable(enable), .value(value));
    always #5 clk = ~clk;

    initial begin
        #20 reset = 0; enable = 1;
        #100 $display("value %d", value);
        $finish;
    end
endmodule
